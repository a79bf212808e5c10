//===- Doorbell.cpp - ranks that wake each other --------------------------===//
#include "support/Doorbell.h"

#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pipec {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
                  std::atomic<uint32_t>::is_always_lock_free,
              "the kernel reads the word");

void Doorbell::rest(uint32_t heard, long nanoseconds) const {
  const timespec time{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  wakeOnTime();
  own.asleep.store(1, std::memory_order_seq_cst);
  // Sleeps only while the word is as `heard`. Not the private kind: processes
  // share it.
  syscall(SYS_futex, &own.rings, FUTEX_WAIT, heard, &time, nullptr, 0);
  own.asleep.store(0, std::memory_order_relaxed);
}

void Doorbell::ring(int rank) const {
  Bell *bell = bells[static_cast<size_t>(rank)];
  if (!bell)
    return;
  bell->rings.fetch_add(1, std::memory_order_seq_cst);
  // Who goes to sleep now says so before the kernel compares the word.
  if (bell->asleep.load(std::memory_order_seq_cst))
    syscall(SYS_futex, &bell->rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

} // namespace pipec
