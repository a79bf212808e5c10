//===- ControlServer.h - who watches the ranks ------------------*- C++ -*-===//
//
// One process of a job, the one that started it or else rank 0, holds a line to
// every rank. Lines, from a rank:
//   hello TOKEN RANK PID | beat PROGRESS WAITING PEER STEP OPERATION
//   here (as beat, in answer to where)
//   fail CODE MESSAGE | stop | done CODE
// and to a rank:
//   beat | where (are you now?) | lost MESSAGE | stuck MESSAGE
//   fail CODE RANK MESSAGE | stop
// A rank whose line closes before `done` has died; one that is silent for half
// the timeout, which this process was awake for, has stopped; when all wait and
// nothing moves, the job is stuck.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/control/AwakeTime.h"
#include "runtime/control/LineSocket.h"
#include "support/Failure.h"

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <sys/types.h>
#include <thread>
#include <vector>

namespace pipec {

class ControlServer {
public:
  /// `nameOf(rank)`: "rank 1 (stage 1)". Everywhere: for ranks on other hosts.
  ControlServer(int ranks, double timeout, bool everywhere,
                std::function<std::string(int)> nameOf);
  ~ControlServer();

  /// What a ControlClient connects to.
  std::string address() const { return where; }

  /// All ranks are to stop after this step.
  void stop() { stopping = true; }

  struct Trouble {
    Exit code;
    std::string message;
    int origin; ///< as an Alarm has it
  };
  /// The first failure, if there was one.
  std::optional<Trouble> trouble() const;
  /// Raises one from outside.
  void fail(Exit code, const std::string &message, int origin);

  struct RankView {
    pid_t pid = 0;          ///< 0 before it has said hello
    bool connected = false; ///< its line is open
    bool lost = false;
    int64_t step = -1;       ///< the last it was heard in, from 0
    std::optional<int> code; ///< what it exits with
  };
  std::vector<RankView> ranks() const;

private:
  struct Client {
    explicit Client(LineSocket socket) : socket(std::move(socket)) {}
    LineSocket socket;
    int rank = -1;
    double heard = 0; ///< in the server's time
    uint64_t progress = 0;
    bool waiting = false;
    int peer = -1;     ///< that it waits for
    int64_t step = -1; ///< in which it does
    bool here = false; ///< all of that is an answer, not an old beat
    std::string operation = "starting";
  };
  void serve();
  void accept();
  void handle(Client &client, const std::string &line);
  void closed(Client &client);
  void lose(int rank, const std::string &how);
  std::string deathsAfter(int rank) const;
  std::string lastHeard(const Client &client) const;
  const Client *waiterFor(int rank, bool answered) const;
  std::string lossOf(int rank, const std::string &heard) const;
  void lookForDeath();
  void lookForSilence();
  void lookForStall();
  void announce(const Trouble &trouble);
  void broadcast(const std::string &line);
  bool flushAll();

  const int count;
  const double timeout;
  const std::function<std::string(int)> nameOf;
  std::string token, where;
  int listener = -1;
  std::list<Client> clients;
  /// A rank whose line has closed, before it is told.
  struct Death {
    int rank;
    std::string heard;
    double since; ///< in the server's time
  };
  std::vector<Death> dead;
  AwakeTime time;
  double moved = 0; ///< at the last progress
  uint64_t lastProgress = 0;
  bool announced = false, stopSent = false;

  mutable std::mutex mutex; ///< of the two below
  std::vector<RankView> views;
  std::optional<Trouble> first;
  std::atomic<bool> stopping{false}, ending{false};
  std::thread thread;
};

} // namespace pipec
