//===- LocalJob.cpp - ranks as processes of this machine ------------------===//
//
// The process the user started stays, as the one that watches: it knows when a
// rank dies or stops, tells the others, sees to it that no process remains, and
// has the last word about the exit code.
//
//===----------------------------------------------------------------------===//
#include "runtime/control/ControlServer.h"
#include "runtime/control/Stop.h"
#include "runtime/exec/RankState.h"
#include "runtime/exec/Recorder.h"
#include "runtime/program/Sequence.h"
#include "runtime/run/Ranks.h"
#include "runtime/run/StepPhases.h"
#include "support/Exhausted.h"
#include "support/ScratchFolder.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <poll.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pipec {

namespace {

/// Passes on what the launched program says, except what it always says when a
/// rank is lost: we have said more.
class ErrorStream {
public:
  void take(int descriptor) {
    char buffer[4096];
    ssize_t got = 0;
    while ((got = ::read(descriptor, buffer, sizeof buffer)) > 0)
      text.append(buffer, static_cast<size_t>(got));
    size_t end = 0;
    while ((end = text.find('\n')) != std::string::npos) {
      const std::string line = text.substr(0, end + 1);
      text.erase(0, end + 1);
      if (!isOfALoss(line))
        std::cerr << line;
    }
  }
  ~ErrorStream() { std::cerr << text; }

private:
  /// The second: a message was still being read out of a rank that has ended.
  static bool isOfALoss(const std::string &line) {
    return line.find("PMIX ERROR") != std::string::npos ||
           line.find("] Read -1, expected ") != std::string::npos;
  }

  std::string text;
};

/// Whether a shell would find a program of this name.
bool onPath(const std::string &name) {
  const char *path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (::access((folder + "/" + name).c_str(), X_OK) == 0)
      return true;
  return false;
}

/// Passes on what rank 0 prints: here, where it is known whether it arrives.
void passOn(int descriptor) {
  char buffer[4096];
  ssize_t got = 0;
  while ((got = ::read(descriptor, buffer, sizeof buffer)) > 0)
    std::cout.write(buffer, got);
  std::cout.flush();
}

/// A pipe that is read here and written by a child.
struct ChildPipe {
  int ends[2] = {-1, -1}; // what is read, what is written

  ~ChildPipe() {
    for (int end : ends)
      if (end >= 0)
        ::close(end);
  }
  void open() {
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw Failure(Exit::Unavailable,
                    std::string("pipe: ") + std::strerror(errno));
  }
  void readWithoutWaiting() const {
    ::fcntl(ends[0], F_SETFL, ::fcntl(ends[0], F_GETFL) | O_NONBLOCK);
  }
  void leaveToChild() {
    ::close(ends[1]);
    ends[1] = -1;
  }
};

/// A folder for the launched programs' own files, or none: they know places.
std::unique_ptr<ScratchFolder> scratchIn(const std::string &parent) {
  try {
    return std::make_unique<ScratchFolder>(parent, "pipec-run");
  } catch (const Failure &) {
    return nullptr;
  }
}

std::string pathOf(const std::unique_ptr<ScratchFolder> &folder) {
  return folder ? folder->path() : "";
}

class LocalJob {
public:
  LocalJob(const plan::Plan &plan, const RunOptions &options)
      : temporary(scratchIn("/tmp")), shared(scratchIn("/dev/shm")),
        doing(plan::forwardOnly(plan) ? "running" : "training"),
        steps(options.steps), timeout(options.timeout),
        server(static_cast<int>(plan.ranks.size()), options.timeout, false,
               [&plan](int rank) { return RankState::nameOf(plan, rank); }) {}

  ~LocalJob() { killAll(); }

  void start(const TransportRow &row, int ranks, char **argv) {
    std::vector<std::string> command =
        row.launch(ranks, {pathOf(temporary), pathOf(shared)});
    char self[4096] = "";
    if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0)
      throw Failure(Exit::Unavailable, "cannot find my own program file");
    std::vector<char *> arguments;
    for (std::string &word : command)
      arguments.push_back(word.data());
    arguments.push_back(self);
    for (char **word = argv + 1; *word; ++word)
      arguments.push_back(*word);
    arguments.push_back(nullptr);
    ChildPipe refusal; // closed by the program, where there is one
    refusal.open();
    errors.open();
    results.open();
    setenv(kControlVariable, server.address().c_str(), 1);
    const pid_t parent = ::getpid();
    child = ::fork();
    if (child < 0)
      throw noThread(std::strerror(errno));
    if (child == 0) {
      ::setsid(); // signals of the terminal are ours alone
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent)
        _exit(1);
      const int nothing = ::open("/dev/null", O_RDONLY);
      ::dup2(nothing, STDIN_FILENO);
      ::dup2(results.ends[1], STDOUT_FILENO);
      ::dup2(errors.ends[1], STDERR_FILENO);
      ::execvp(arguments[0], arguments.data());
      const int why = errno;
      const ssize_t told = ::write(refusal.ends[1], &why, sizeof why);
      _exit(told == sizeof why ? 127 : 126);
    }
    refusal.leaveToChild();
    errors.leaveToChild();
    results.leaveToChild();
    int why = 0;
    if (::read(refusal.ends[0], &why, sizeof why) == sizeof why)
      throw Failure(Exit::Unavailable,
                    command[0] + ": " + std::strerror(why) +
                        "; install it, or give --transport inproc");
    errors.readWithoutWaiting();
    results.readWithoutWaiting();
  }

  Exit supervise() {
    ErrorStream stream;
    double troubleAt = 0, doneAt = 0;
    int status = 0;
    while (true) {
      pollfd waiting[] = {{errors.ends[0], POLLIN, 0},
                          {results.ends[0], POLLIN, 0}};
      ::poll(waiting, 2, 10);
      stream.take(errors.ends[0]);
      passOn(results.ends[0]);
      tellStep();
      if (::waitpid(child, &status, WNOHANG) == child)
        break;
      if (stopRequested())
        server.stop();
      if (server.trouble()) {
        troubleAt = troubleAt ? troubleAt : now();
        endLost(now() - troubleAt);
      } else if (allDone()) {
        doneAt = doneAt ? doneAt : now();
        const double since = now() - doneAt;
        if (since > std::min(10.0, timeout))
          killRanks();
        if (since > std::min(12.0, timeout + 2)) // it has stopped
          killLauncher();
      }
    }
    if (WIFSIGNALED(status))
      killRanks();
    child = -1;
    stream.take(errors.ends[0]);
    passOn(results.ends[0]);
    return verdict(status);
  }

private:
  /// What rank 0 would say itself, had it the terminal.
  void tellStep() {
    const int64_t step = server.ranks()[0].step;
    if (step < 0)
      return;
    starting.reset();
    if (!phases)
      phases.emplace(true, doing, steps);
    phases->at(step + 1);
  }

  /// All ranks have said how they ended: one that stops after that has nothing
  /// left to do.
  bool allDone() const {
    const auto ranks = server.ranks();
    return std::all_of(ranks.begin(), ranks.end(),
                       [](auto &rank) { return rank.code.has_value(); });
  }

  /// After a failure: the ranks that were given up are killed as soon as all
  /// others have left, and everything when that takes too long.
  void endLost(double since) {
    const auto ranks = server.ranks();
    const bool othersLeft =
        std::none_of(ranks.begin(), ranks.end(),
                     [](auto &rank) { return rank.connected && !rank.lost; });
    const bool late = since > std::min(5.0, timeout / 3);
    for (auto &rank : ranks)
      if (rank.connected && ((rank.lost && othersLeft) || late))
        ::kill(rank.pid, SIGKILL);
    if (late && since > std::min(6.0, timeout / 2.5))
      killLauncher();
  }

  void killLauncher() {
    isKilledHere = true;
    ::kill(child, SIGKILL);
  }

  /// Also those that have left the server: what is in the child's session is
  /// ours, whoever has the number of a rank that has ended.
  void killRanks() {
    for (auto &rank : server.ranks())
      if (rank.pid > 0 && ::getsid(rank.pid) == child)
        ::kill(rank.pid, SIGKILL);
  }

  void killAll() {
    if (child <= 0)
      return;
    killRanks();
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  Exit verdict(int status) {
    const auto ranks = server.ranks();
    const bool told = std::any_of(ranks.begin(), ranks.end(),
                                  [](auto &rank) { return rank.code; });
    // Ranks die with their launcher, and may be missed first.
    const bool orphaned = WIFSIGNALED(status) && !isKilledHere && !told;
    if (auto trouble = server.trouble(); trouble && !orphaned) {
      if (!told) // nobody was left to say it
        complain({trouble->code, trouble->message});
      return trouble->code;
    }
    int code = 0;
    bool all = true;
    for (auto &rank : ranks) {
      all &= rank.code.has_value();
      code = std::max(code, rank.code.value_or(0));
    }
    if (all)
      return static_cast<Exit>(code);
    if (WIFSIGNALED(status) &&
        std::any_of(ranks.begin(), ranks.end(),
                    [](auto &rank) { return rank.pid > 0; })) {
      complain({Exit::PeerLost,
                "the launcher of the ranks was killed by signal " +
                    std::to_string(WTERMSIG(status)) +
                    " while they ran; what they have saved is whole: go on "
                    "with --resume, or start again"});
      return Exit::PeerLost;
    }
    complain({Exit::Unavailable,
              "the ranks could not be started (the launcher's exit status is " +
                  std::to_string(WIFEXITED(status) ? WEXITSTATUS(status)
                                                   : 128 + WTERMSIG(status)) +
                  (onPath("ssh") || onPath("rsh")
                       ? "; what it says stands above)"
                       : "): mpirun needs ssh or rsh on PATH, even on one "
                         "machine") +
                  "; with --transport inproc nothing is to be launched"});
    return Exit::Unavailable;
  }

  /// What killed processes leave behind must not fill the disk.
  std::unique_ptr<ScratchFolder> temporary, shared;
  const char *const doing;
  const int64_t steps;
  std::optional<Phase> starting{"starting the ranks"};
  std::optional<StepPhases> phases;
  double timeout;
  ControlServer server;
  pid_t child = -1;
  bool isKilledHere = false; ///< by this process, which knows why
  ChildPipe errors, results;
};

} // namespace

Exit runLocalJob(const plan::Plan &plan, const RunOptions &options,
                 const TransportRow &row, char **argv) {
  LocalJob job(plan, options);
  job.start(row, static_cast<int>(plan.ranks.size()), argv);
  return job.supervise();
}

} // namespace pipec
