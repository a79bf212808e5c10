//===- Stop.cpp - a wish to stop after this step --------------------------===//
#include "runtime/control/Stop.h"
#include "support/TerminalProgress.h"

#include <atomic>
#include <csignal>
#include <initializer_list>

namespace pipec {
namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void onSignal(int signal) {
  // A second one does not wait for the step to end.
  if (requested.exchange(true, std::memory_order_relaxed)) {
    abandonProgress();
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

} // namespace

void catchSignals() {
  struct sigaction action{};
  action.sa_handler = onSignal;
  action.sa_flags = SA_RESTART;
  for (int signal : {SIGTERM, SIGINT, SIGUSR1})
    sigaction(signal, &action, nullptr);
  // A terminal that went away; nohup ignores that, and so do we then.
  struct sigaction hangUp{};
  if (sigaction(SIGHUP, nullptr, &hangUp) == 0 && hangUp.sa_handler != SIG_IGN)
    sigaction(SIGHUP, &action, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

bool stopRequested() { return requested.load(std::memory_order_relaxed); }
void requestStop() { requested.store(true, std::memory_order_relaxed); }

} // namespace pipec
