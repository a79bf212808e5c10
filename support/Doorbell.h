//===- Doorbell.h - ranks that wake each other ------------------*- C++ -*-===//
//
// Messages are looked for: MPI has no way to sleep until one arrives. Ranks
// that share memory ring each other's bell when they have sent something, so
// that who waits sleeps without looking and is awake some microseconds later.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <atomic>
#include <cstdint>
#include <sys/prctl.h>
#include <vector>

namespace pipec {

/// One rank's bell, in memory that those who ring it share. All zero at first.
struct alignas(64) Bell {
  std::atomic<uint32_t> rings{0}, asleep{0};
};

/// The kernel may put a thread's wake-ups off by its timer slack, 50 us unless
/// it is told otherwise: more than most who wait ask for.
inline void wakeOnTime() {
  static thread_local const int told = ::prctl(PR_SET_TIMERSLACK, 1000);
  (void)told;
}

class Doorbell {
public:
  /// `bells`: of every rank, null where it cannot be reached. `complete`: all
  /// messages come with a ring, but for steps within a long one that MPI may
  /// need; otherwise a rank has to look, too.
  Doorbell(int self, std::vector<Bell *> bells, bool complete)
      : own(*bells[static_cast<size_t>(self)]), bells(std::move(bells)),
        complete(complete) {}

  /// How often this rank's has been rung: read it, look whether what is waited
  /// for is there, then rest.
  uint32_t rings() const { return own.rings.load(std::memory_order_seq_cst); }

  /// Sleeps until this rank's bell has rung more often than `heard`, or as many
  /// nanoseconds; it may wake up earlier.
  void rest(uint32_t heard, long nanoseconds) const;

  /// Wakes `rank` up. By any thread.
  void ring(int rank) const;

  bool isComplete() const { return complete; }

private:
  Bell &own;
  std::vector<Bell *> bells;
  bool complete;
};

} // namespace pipec
