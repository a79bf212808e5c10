//===- Watch.cpp - what a rank does now, and whether it may go on ---------===//
#include "runtime/control/Watch.h"

#include "support/Backoff.h"

namespace pipec {

std::string describe(const Operation &operation) {
  std::string text = operation.what;
  if (operation.waiting && text.rfind("waiting", 0) != 0)
    text = "waiting for the other ranks after " + text;
  if (operation.value)
    text += std::string(" '") + operation.value + "'";
  if (operation.microbatch >= 0)
    text += " of microbatch " + std::to_string(operation.microbatch);
  if (operation.step >= 0)
    text += std::string(operation.microbatch >= 0 ? "," : " of") + " step " +
            std::to_string(operation.step + 1);
  if (operation.stage >= 0)
    text += " on stage " + std::to_string(operation.stage);
  if (operation.peer >= 0)
    text += ", with rank " + std::to_string(operation.peer);
  return text;
}

void Alarm::raise(Exit code, const std::string &message, int origin) {
  std::lock_guard lock(mutex);
  if (up.load(std::memory_order_relaxed))
    return;
  if (before)
    before();
  reason = code, text = message, from = origin;
  up.store(true, std::memory_order_release);
}

void Alarm::beforeRaise(std::function<void()> action) {
  std::lock_guard lock(mutex);
  before = std::move(action);
}

Exit Alarm::code() const {
  std::lock_guard lock(mutex);
  return reason;
}
std::string Alarm::message() const {
  std::lock_guard lock(mutex);
  return text;
}
int Alarm::origin() const {
  std::lock_guard lock(mutex);
  return from;
}

std::string waitsForIt(int rank) {
  return ": rank " + std::to_string(rank) + " waits for it";
}

void Watch::enter(const Operation &operation) {
  std::lock_guard lock(mutex);
  current = operation;
  ++progress;
}

void Watch::check() {
  if (alarm.raised())
    throw Alarmed(alarm.code(), explain());
}

bool Watch::speaks() const { return rank == 0 || alarm.origin() != kAllWait; }

void Watch::remember(std::string remedy) {
  std::lock_guard lock(mutex);
  wayOn = std::move(remedy);
}

std::string Watch::remedy() const {
  std::lock_guard lock(mutex);
  return wayOn;
}

std::string Watch::explain() const {
  const std::string last = alarm.code() == Exit::PeerLost ? remedy() : "";
  if (alarm.origin() == kAllWait)
    return alarm.message() + last;
  // What the others know of this rank it says itself, and more.
  std::string known = alarm.message();
  if (const size_t from = known.find(waitsForIt(rank));
      from != std::string::npos)
    known.erase(from, known.find(',', from) - from);
  return known + ", and " + name + " was " + describe(snapshot().operation) +
         last;
}

void Watch::until(const std::function<bool()> &ready,
                  const Operation &operation, const Doorbell *bell) {
  if (ready())
    return;
  const Operation before = snapshot().operation;
  Operation now = operation;
  now.waiting = true;
  enter(now);
  Backoff backoff;
  while (true) {
    const uint32_t heard = bell ? bell->rings() : 0;
    if (ready())
      break;
    check();
    if (idle)
      idle();
    if (yielding) // rests by itself: here it would keep others from going on
      yielding();
    else
      backoff.pause(bell, heard);
  }
  enter(before);
}

void Watch::wait(Transport &transport, Request &request,
                 const Operation &operation) {
  until([&] { return transport.done(request); }, operation, transport.bell());
}

Watch::Snapshot Watch::snapshot() const {
  std::lock_guard lock(mutex);
  return {current, progress};
}

} // namespace pipec
