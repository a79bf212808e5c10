//===- Watch.h - what a rank does now, and whether it may go on -*- C++ -*-===//
//
// Every wait of a rank goes through its Watch, so that the rank can say what it
// waits for, a watchdog can see it, and an alarm ends the wait.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/transport/Transport.h"
#include "support/Failure.h"

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

namespace pipec {

/// What a rank is doing. `what`: a phrase ("waiting for activation"); fields
/// that do not apply are -1 or null. Strings live as long as the run.
struct Operation {
  bool waiting = false;
  const char *what = "starting";
  const char *value = nullptr; ///< the tensor
  int stage = -1, peer = -1;
  int64_t step = -1, microbatch = -1; ///< from 0
};

/// "waiting for activation 'h' of microbatch 3, step 7, from rank 2 (stage 2)";
/// microbatch from 0, step from 1 as in the metrics.
std::string describe(const Operation &operation);

/// ": rank 1 waits for it", of a rank that has died.
std::string waitsForIt(int rank);

/// Origins of an alarm that are no rank which has failed by itself: a watchdog
/// has noticed the loss of one, or that all wait and says what each of them
/// does.
constexpr int kNoticed = -1, kAllWait = -2;

/// Raised once for all ranks of a process, by the first failure anywhere.
class Alarm {
public:
  /// `origin`: the rank that failed by itself, kNoticed or kAllWait.
  void raise(Exit code, const std::string &message, int origin);
  bool raised() const { return up.load(std::memory_order_acquire); }
  Exit code() const;
  std::string message() const;
  int origin() const;

  /// `action` is called once, before any rank can see the alarm.
  void beforeRaise(std::function<void()> action);

private:
  std::atomic<bool> up{false};
  mutable std::mutex mutex;
  Exit reason = Exit::Ok;
  std::string text;
  int from = -1;
  std::function<void()> before;
};

/// Thrown in a rank when an alarm ends it.
class Alarmed : public Failure {
public:
  using Failure::Failure;
};

/// Thrown in a rank whose peers wait where they hear of nothing but an alarm:
/// they cannot be asked whether they have failed, too.
class Unattended : public Failure {
public:
  using Failure::Failure;
};

class Watch {
public:
  /// `name`: "rank 1 (stage 1)".
  Watch(int rank, std::string name, Alarm &alarm)
      : rank(rank), name(std::move(name)), alarm(alarm) {}

  const int rank;
  const std::string name;

  /// Says what the rank does from now on. Counts as progress.
  void enter(const Operation &operation);
  /// Throws Alarmed when the alarm is up.
  void check();
  /// The alarm's message, and what this rank was doing unless that says it;
  /// behind the loss of a rank, the remedy.
  std::string explain() const;
  /// What to do when a rank is lost, "; go on with --resume ckpt": from the
  /// rank that says it for all. Empty: nothing.
  void remember(std::string remedy);
  std::string remedy() const;
  /// Whether this rank is to say so: what one says for all, rank 0 does.
  bool speaks() const;
  /// Returns when `ready` says so; what it waits for rings `bell`, if there is
  /// one. Throws Alarmed.
  void until(const std::function<bool()> &ready, const Operation &operation,
             const Doorbell *bell = nullptr);
  /// Returns when the transfer is done. Throws Alarmed.
  void wait(Transport &transport, Request &request, const Operation &operation);

  /// `yield` is called again and again during every wait, instead of resting,
  /// until it is replaced.
  void whileWaiting(std::function<void()> yield) {
    yielding = std::move(yield);
  }

  struct Snapshot {
    Operation operation;
    uint64_t progress;
  };
  Snapshot snapshot() const;

private:
  friend class WhileWaiting;
  std::function<void()> idle, yielding;
  Alarm &alarm;
  mutable std::mutex mutex;
  Operation current;
  uint64_t progress = 0;
  std::string wayOn; ///< the remedy
};

/// While it lives, `work` is done again and again during every wait of the
/// rank.
class WhileWaiting {
public:
  WhileWaiting(Watch &watch, std::function<void()> work)
      : watch(watch), before(std::exchange(watch.idle, std::move(work))) {}
  ~WhileWaiting() { watch.idle = std::move(before); }
  WhileWaiting(const WhileWaiting &) = delete;
  WhileWaiting &operator=(const WhileWaiting &) = delete;

private:
  Watch &watch;
  std::function<void()> before;
};

} // namespace pipec
