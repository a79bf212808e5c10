//===- TerminalProgress.cpp - the progress line of a command --------------===//
#include "support/TerminalProgress.h"
#include "support/Clock.h"
#include "support/ProgressLine.h"

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <streambuf>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>

namespace pipec {
namespace {

//===----------------------------------------------------------------------===//
// The terminal
//===----------------------------------------------------------------------===//

/// The line is on the screen; someone is writing; nothing is written any more.
std::atomic<bool> isShown{false}, isWriting{false}, isOver{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void writeAll(const char *text, size_t bytes) {
  while (bytes > 0) {
    const ssize_t done = ::write(STDERR_FILENO, text, bytes);
    if (done < 0 && errno != EINTR)
      return; // a terminal that is gone
    if (done > 0)
      text += done, bytes -= static_cast<size_t>(done);
  }
}

void writeToTerminal(const std::string &text) {
  isWriting = true;
  if (!isOver) {
    writeAll(text.data(), text.size());
    isShown = text != ProgressLine::kErase;
  }
  isWriting = false;
}

bool canDraw() {
  const char *kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) && kind && std::strcmp(kind, "dumb") != 0;
}

int columnsOfTerminal() {
  // While this is a job in the background the screen is another's.
  const pid_t owner = ::tcgetpgrp(STDERR_FILENO);
  if (owner > 0 && owner != ::getpgrp())
    return 0;
  constexpr int kUsual = 80;
  struct winsize size{};
  const bool isKnown =
      ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return isKnown ? size.ws_col : kUsual;
}

//===----------------------------------------------------------------------===//
// What else is printed
//===----------------------------------------------------------------------===//

/// A stream's buffer, before which the line makes way.
class Polite : public std::streambuf {
public:
  Polite(std::ostream &stream, ProgressLine &line)
      : stream(stream), line(line), to(stream.rdbuf()) {
    stream.rdbuf(this);
  }
  ~Polite() override {
    // A stream forgets that it has failed when it gets another buffer.
    const auto state = stream.rdstate();
    stream.rdbuf(to);
    stream.setstate(state);
  }

protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof()))
      return traits_type::not_eof(c);
    const char text = traits_type::to_char_type(c);
    return xsputn(&text, 1) == 1 ? c : traits_type::eof();
  }
  std::streamsize xsputn(const char *text, std::streamsize bytes) override {
    std::streamsize done = 0;
    line.makeWay({text, static_cast<size_t>(bytes)},
                 [&] { done = to->sputn(text, bytes); });
    return done;
  }
  int sync() override { return to->pubsync(); }

private:
  std::ostream &stream;
  ProgressLine &line;
  std::streambuf *const to;
};

//===----------------------------------------------------------------------===//
// Signals
//===----------------------------------------------------------------------===//

constexpr int kDeadly[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

void onSignal(int signal) {
  abandonProgress();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// The program ends by these as it would without; where it has a handler of its
/// own, that stays.
class DeadlySignals {
public:
  DeadlySignals() {
    struct sigaction ours{};
    ours.sa_handler = onSignal;
    for (size_t i = 0; i < std::size(kDeadly); ++i) {
      struct sigaction before{};
      sigaction(kDeadly[i], nullptr, &before);
      isOurs[i] = before.sa_handler == SIG_DFL;
      if (isOurs[i])
        sigaction(kDeadly[i], &ours, nullptr);
    }
  }
  ~DeadlySignals() {
    for (size_t i = 0; i < std::size(kDeadly); ++i)
      if (isOurs[i])
        std::signal(kDeadly[i], SIG_DFL);
  }

private:
  bool isOurs[std::size(kDeadly)] = {};
};

/// Looks at the line again and again.
class Drawer {
public:
  explicit Drawer(ProgressLine &line) : line(line) {
    // Handlers wait for this thread to have written: it runs none.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread = std::thread([this] { draw(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Drawer() {
    {
      const std::lock_guard<std::mutex> guard(lock);
      isEnding = true;
    }
    changed.notify_one();
    thread.join();
  }

private:
  void draw() {
    const std::chrono::duration<double> interval(ProgressLine::kInterval);
    std::unique_lock<std::mutex> guard(lock);
    while (!changed.wait_for(guard, interval, [this] { return isEnding; }))
      line.look();
  }

  ProgressLine &line;
  std::mutex lock;
  std::condition_variable changed;
  bool isEnding = false;
  std::thread thread;
};

} // namespace

struct TerminalProgress::Line {
  Line() {
    if (::isatty(STDOUT_FILENO)) // what goes elsewhere is not in its way
      results.emplace(std::cout, line);
  }

  DeadlySignals signals;
  ProgressLine line{{now, columnsOfTerminal, writeToTerminal}};
  Polite messages{std::cerr, line};
  std::optional<Polite> results;
  Drawer drawer{line};
};

TerminalProgress::TerminalProgress(bool quiet) {
  if (!quiet && canDraw())
    line = std::make_unique<Line>();
}
TerminalProgress::~TerminalProgress() = default;

void abandonProgress() {
  isOver = true;
  // Not for ever: the handler may run where the writer was interrupted.
  for (int i = 0; i < 20 && isWriting; ++i) {
    const timespec moment{0, 1'000'000};
    ::nanosleep(&moment, nullptr);
  }
  if (isShown)
    writeAll(ProgressLine::kErase, std::strlen(ProgressLine::kErase));
}

} // namespace pipec
