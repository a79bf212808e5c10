//===- Ranks.cpp - the ranks that live in this process --------------------===//
#include "runtime/run/Ranks.h"
#include "runtime/control/AwakeTime.h"
#include "runtime/control/ControlClient.h"
#include "runtime/control/ControlServer.h"
#include "runtime/control/Fuse.h"
#include "runtime/device/cuda/Links.h"
#include "runtime/run/Session.h"
#include "support/Cores.h"
#include "support/Environment.h"
#include "support/Exhausted.h"
#include "support/Printable.h"
#include "support/TerminalProgress.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>
#include <unistd.h>
#include <utility>

namespace pipec {

namespace {

/// With --format json an error may follow, whose object has the notes.
std::mutex notesLock;
std::vector<std::string> keptNotes;

std::vector<std::string> takeNotes() {
  const std::lock_guard<std::mutex> guard(notesLock);
  return std::exchange(keptNotes, {});
}

/// A transport may be the first to notice that a rank is lost.
std::string remedyFor(const Failure &failure, const Watch &watch) {
  return failure.code == Exit::PeerLost ? watch.remedy() : "";
}

void sayNote(const std::string &message) {
  std::cerr << "pipec-run: note: " + printable(message) + "\n";
}

} // namespace

void complain(const Failure &failure) {
  const Invocation &asked = invocation();
  std::cerr << errorText("pipec-run", failure, asked.input, asked.json,
                         takeNotes());
}

void remark(const std::string &message) {
  if (!invocation().json)
    return sayNote(message);
  const std::lock_guard<std::mutex> guard(notesLock);
  keptNotes.push_back(message);
}

void sayRemarks(Exit code) {
  // The error, with its notes, was said by another process, as one object that
  // is all there is on stderr: whoever reads it as JSON finds no text behind.
  const bool isObject =
      invocation().json && code != Exit::Ok && code != Exit::Stopped;
  for (const std::string &note : takeNotes())
    if (!isObject)
      sayNote(note);
}

void tellEnd(const Failure &agreed) {
  if (agreed.code == Exit::Stopped)
    remark(agreed.what());
  else
    complain(agreed);
}

void complainOnce(const Failure &failure) {
  for (const char *name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                           "SLURM_LOCALID", "LOCAL_RANK"})
    if (integerVariable(name).value_or(0) != 0) {
      // mpirun kills all others once one has left: the one that says it, too.
      usleep(500'000);
      return;
    }
  complain(failure);
}

/// Ranks of its machine, itself included.
static int neighboursOf(const plan::Plan &plan, int rank) {
  return static_cast<int>(
      std::count_if(plan.ranks.begin(), plan.ranks.end(), [&](auto &other) {
        return other.host == plan.ranks[rank].host;
      }));
}

void chooseThreads(const plan::Plan &plan, const RunOptions &options,
                   int rank) {
  int threads = options.threads;
  if (threads == 0 && std::getenv("OMP_NUM_THREADS"))
    return;
  if (threads == 0)
    threads =
        std::max(1, availableCores() / std::max(1, neighboursOf(plan, rank)));
  // The kernels, which a plan for GPUs does without.
  if (void *set = dlsym(RTLD_DEFAULT, "pipec_set_threads"))
    reinterpret_cast<void (*)(int)>(set)(threads);
}

int threadsOfThisRank() {
  void *get = dlsym(RTLD_DEFAULT, "pipec_threads");
  return get ? reinterpret_cast<int (*)()>(get)() : 1;
}

void takeOwnCore(const plan::Plan &plan, int rank) {
  const int cores = availableCores(), ranks = neighboursOf(plan, rank);
  if (plan.cluster.kind == "cpu" && threadsOfThisRank() == 1 && ranks > cores &&
      ranks % cores == 0 && !isWished("PIPEC_RANK_CORES", "free"))
    keepToCore(static_cast<int>(plan.ranks[rank].device));
}

namespace {

/// Ends a job of threads in which everyone waits for someone.
class StallWatch {
public:
  StallWatch(std::vector<std::unique_ptr<Watch>> &watches, Alarm &alarm,
             double timeout)
      : watches(watches), alarm(alarm), timeout(timeout), time(timeout) {}

  void look() {
    uint64_t progress = 0;
    bool allWait = true;
    std::string text;
    for (auto &watch : watches) {
      const Watch::Snapshot state = watch->snapshot();
      progress += state.progress;
      allWait &= state.operation.waiting;
      text += (text.empty() ? " " : ", ") + watch->name + " is " +
              describe(state.operation);
    }
    const double now = time.look();
    if (progress != last || !allWait)
      last = progress, moved = now;
    if (now - moved > timeout / 2)
      alarm.raise(Exit::PeerLost, "no rank makes progress:" + text, kAllWait);
  }

private:
  std::vector<std::unique_ptr<Watch>> &watches;
  Alarm &alarm;
  double timeout;
  AwakeTime time;
  double moved = 0;
  uint64_t last = 0;
};

} // namespace

Exit runThreads(const plan::Plan &plan, const RunOptions &options,
                const TransportRow &row) {
  const auto count = static_cast<int>(plan.ranks.size());
  auto ends = row.open({count, options.timeout, 0});
  std::vector<std::unique_ptr<Links>> links(static_cast<size_t>(count));
  if (plan.cluster.kind == "cuda" && count > 1)
    links = linksNamed("copies").open({count, nullptr});
  Alarm alarm;
  alarm.beforeRaise([&] {
    for (auto &end : ends)
      end->abandon();
    for (auto &link : links)
      if (link)
        link->abandon();
  });
  std::vector<std::unique_ptr<Watch>> watches;
  for (int rank = 0; rank < count; ++rank)
    watches.push_back(
        std::make_unique<Watch>(rank, RankState::nameOf(plan, rank), alarm));
  std::vector<std::thread> threads;
  std::vector<Exit> codes(count, Exit::Ok);
  std::atomic<int> running{count};
  auto body = [&](int rank) {
    // Its memory, which others copy from, goes after the alarm.
    std::optional<Session> session;
    try {
      codes[rank] = whileItLasts([&] {
        chooseThreads(plan, options, rank);
        takeOwnCore(plan, rank);
        return session
            .emplace(plan, options, *ends[rank], *watches[rank],
                     links[static_cast<size_t>(rank)].get())
            .run();
      });
    } catch (const Agreed &failure) {
      codes[rank] = failure.code;
      if (rank == 0)
        tellEnd(failure);
    } catch (const Alarmed &failure) {
      codes[rank] = failure.code;
      if (failure.code == Exit::PeerLost && watches[rank]->speaks())
        complain(failure);
    } catch (const Failure &failure) {
      // What fails behind the alarm fails for what the alarm is about.
      alarm.raise(failure.code, failure.what(), rank);
      codes[rank] = alarm.code();
      if (alarm.origin() == rank ||
          (alarm.code() == Exit::PeerLost && watches[rank]->speaks()))
        complain({failure.code, watches[rank]->name + ": " + failure.what() +
                                    remedyFor(failure, *watches[rank])});
    }
    session.reset();
    --running;
  };
  std::optional<Exhausted> unstarted;
  int started = 0;
  threads.reserve(static_cast<size_t>(count));
  try {
    whileItLasts([&] {
      for (; started < count; ++started)
        threads.emplace_back(body, started);
    });
  } catch (const Exhausted &failure) { // those that have been started end
    unstarted.emplace(failure);
    alarm.raise(failure.code, failure.what(), kNoticed);
    running -= count - started;
  }
  StallWatch stall(watches, alarm, options.timeout);
  while (running > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stall.look();
  }
  for (std::thread &thread : threads)
    thread.join();
  if (unstarted)
    throw *unstarted;
  return codes[0];
}

namespace {

/// Waits, not for ever, until all ranks have said that they are done.
void waitForOthers(const ControlServer &server, double limit) {
  const double until = now() + limit;
  auto left = [&] {
    const auto ranks = server.ranks();
    return std::any_of(ranks.begin(), ranks.end(), [](auto &rank) {
      return rank.connected && !rank.code && !rank.lost;
    });
  };
  while (left() && now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

/// The same for all processes that run this plan.
uint64_t jobOf(const std::string &folder) {
  std::ifstream file(folder + "/plan.json", std::ios::binary);
  uint64_t hash = 14695981039346656037u; // FNV-1a
  for (char c; file.get(c);)
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

/// One rank's process, and what it needs to leave in order.
struct JoinedRank {
  const plan::Plan &plan;
  const RunOptions &options;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Links> links; ///< between GPUs
  Alarm alarm;
  std::unique_ptr<Watch> watch;
  std::unique_ptr<ControlServer> server; ///< rank 0, when nobody else watches
  std::unique_ptr<ControlClient> client;
  std::optional<Fuse> fuse; ///< until somebody watches

  [[noreturn]] void leave(Exit code) {
    if (client)
      client->done(code);
    client.reset();
    if (server)
      waitForOthers(*server, 2);
    server.reset();
    sayRemarks(code);
    abandonProgress();
    std::fflush(nullptr);
    _exit(static_cast<int>(code));
  }

  void meet(const TransportRow &row) {
    const auto count = static_cast<int>(plan.ranks.size());
    transport =
        std::move(row.open({count, options.timeout, jobOf(options.plan),
                            options.quiet || options.json, // only an object
                            client ? nullptr : &fuse})
                      .front());
    alarm.beforeRaise([this] {
      transport->abandon();
      if (links)
        links->abandon();
    });
    if (transport->size() != count)
      throw Failure(Exit::Usage, "the plan has " + std::to_string(count) +
                                     " ranks, the launcher has started " +
                                     std::to_string(transport->size()) +
                                     " (which transport " + row.name +
                                     " has found); start " +
                                     std::to_string(count) +
                                     ", as the scripts in the plan's launch/ "
                                     "do, or name another --transport");
  }

  /// No launcher of ours watches: rank 0 does.
  void watchOurselves() {
    if (fuse) // since they began to connect
      fuse->waitsFor("all ranks to start");
    else
      fuse.emplace(watch->name, "all ranks to start", options.timeout);
    char address[1024] = "";
    if (watch->rank == 0) {
      server = std::make_unique<ControlServer>(
          transport->size(), options.timeout, true,
          [this](int rank) { return RankState::nameOf(plan, rank); });
      server->address().copy(address, sizeof address - 1);
    }
    Council(*transport, *watch)
        .tell("waiting to start", address, sizeof address);
    client = std::make_unique<ControlClient>(
        address, RankState::nameOf(plan, 0), options.timeout, *watch, alarm);
  }

  void say(const Failure &failure) {
    complain({failure.code, (watch ? watch->name + ": " : "") + failure.what() +
                                (watch ? remedyFor(failure, *watch) : "")});
  }
};

} // namespace

Exit runJoined(const plan::Plan &plan, const RunOptions &options,
               const TransportRow &row) {
  JoinedRank self{plan,    options, nullptr, nullptr, {},
                  nullptr, nullptr, nullptr, {}};
  // A GPU's waits for what is queued: after the failure is told.
  std::optional<Session> session;
  try {
    return whileItLasts([&] {
      const char *launcher = std::getenv(kControlVariable);
      const int rank = row.joined(true).value_or(0);
      if (launcher) { // watched before the transport connects
        self.watch =
            std::make_unique<Watch>(rank,
                                    rank < static_cast<int>(plan.ranks.size())
                                        ? RankState::nameOf(plan, rank)
                                        : "rank " + std::to_string(rank),
                                    self.alarm);
        self.client = std::make_unique<ControlClient>(
            launcher, "the launcher", options.timeout, *self.watch, self.alarm);
        self.meet(row);
      } else {
        self.meet(row);
        self.watch = std::make_unique<Watch>(
            self.transport->rank(),
            RankState::nameOf(plan, self.transport->rank()), self.alarm);
        self.watchOurselves();
        self.fuse.reset();
      }
      chooseThreads(plan, options, self.watch->rank);
      if (launcher) // which binds nobody; other launchers may
        takeOwnCore(plan, self.watch->rank);
      if (plan.cluster.kind == "cuda" && plan.ranks.size() > 1)
        self.links =
            std::move(linksNamed("nccl")
                          .open({self.transport->size(), self.transport.get()})
                          .front());
      const Exit code = session
                            .emplace(plan, options, *self.transport,
                                     *self.watch, self.links.get())
                            .run();
      session.reset();
      self.links.reset();
      // All is saved: a launcher of ours ends who is in the way of the
      // goodbyes. Ranks that watch each other hear of such a one while they
      // listen.
      if (launcher)
        self.client->done(code);
      self.transport->close();
      if (!launcher)
        self.client->done(code);
      if (self.server)
        waitForOthers(*self.server, 5);
      return code;
    });
  } catch (const Agreed &failure) {
    if (self.watch && self.watch->rank == 0)
      tellEnd(failure);
    self.leave(failure.code);
  } catch (const Alarmed &failure) {
    if (failure.code == Exit::PeerLost && self.watch->speaks())
      complain(failure);
    self.leave(failure.code);
  } catch (const Failure &failure) {
    if (failure.code == Exit::Usage && !self.watch)
      complainOnce(failure);
    else
      self.say(failure);
    if (self.client)
      self.client->fail(failure.code, failure.what());
    self.leave(failure.code);
  }
}

} // namespace pipec
