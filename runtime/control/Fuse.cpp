//===- Fuse.cpp - an end to waiting that nobody watches -------------------===//
#include "runtime/control/Fuse.h"
#include "runtime/control/AwakeTime.h"
#include "support/CommandLine.h"
#include "support/ErrorText.h"
#include "support/TerminalProgress.h"

#include <chrono>
#include <cstdio>
#include <iostream>
#include <unistd.h>

namespace pipec {

Fuse::Fuse(std::string who, std::string what, double seconds)
    : who(std::move(who)), seconds(seconds), what(std::move(what)),
      thread([this] { burn(); }) {}

Fuse::~Fuse() {
  {
    std::lock_guard lock(mutex);
    out = true;
  }
  changed.notify_one();
  thread.join();
}

void Fuse::waitsFor(std::string next) {
  std::lock_guard lock(mutex);
  what = std::move(next);
}

void Fuse::burn() {
  AwakeTime time(seconds);
  std::unique_lock lock(mutex);
  while (!out && time.look() <= seconds)
    changed.wait_for(lock, std::chrono::milliseconds(50));
  if (out)
    return;
  char limit[32];
  std::snprintf(limit, sizeof limit, "%g", seconds);
  const Failure failure(
      Exit::PeerLost,
      who + " has waited for " + what + " for --timeout " + limit +
          " s; one of them has died, stopped or not been started; where they "
          "are only late, give a longer --timeout");
  std::cerr << errorText("pipec-run", failure, invocation().input,
                         invocation().json);
  abandonProgress();
  std::fflush(nullptr);
  _exit(static_cast<int>(Exit::PeerLost));
}

} // namespace pipec
