//===- Team.cpp - threads that share a loop -------------------------------===//

#include "runtime/kernels/cpu/Team.h"

#include <algorithm>
#include <chrono>
#include <sched.h>
#include <system_error>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pipec::cpu {
namespace {

/// Most pieces of a member: as few calls as leave the others something to take
/// when its core is taken away for a while.
constexpr int64_t kPieces = 4;

/// How long a helper looks for a next loop before it sleeps. Most gaps between
/// the loops of a task are shorter, recurrent layers' too. Who sleeps is awake
/// when a short loop is over: then one thread alone is faster than the team.
constexpr std::chrono::microseconds kLooks{200};

thread_local bool isInLoop = false;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// Looks until isOver() or the time is up; whether it was over.
template <typename IsOver> bool look(const IsOver &isOver) {
  const auto end = std::chrono::steady_clock::now() + kLooks;
  do {
    for (int i = 0; i < 32; ++i) {
      if (isOver())
        return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return isOver();
}

} // namespace

Team::Team(int threads)
    : rows(new Row[static_cast<size_t>(threads)]),
      helpers(new std::thread[static_cast<size_t>(threads)]) {
  // A system that is short of threads gives a smaller team.
  try {
    for (; count < threads; ++count)
      helpers[static_cast<size_t>(count)] =
          std::thread([this, member = count] { serve(member); });
  } catch (const std::system_error &) {
  }
}

Team::~Team() {
  current.fetch_or(1);
  current.notify_all();
  for (int member = 1; member < count; ++member)
    helpers[static_cast<size_t>(member)].join();
}

bool Team::inLoop() { return isInLoop; }

Team &Team::ofThisThread(int threads) {
  static thread_local std::unique_ptr<Team> team;
  static thread_local int asked = 0;
  if (!team || asked != threads) {
    team = nullptr;
    team = std::make_unique<Team>(threads);
    asked = threads;
  }
  return *team;
}

void Team::run(const Loop &loop) {
  const uint32_t number = current.load(std::memory_order_relaxed) + 2;
  function.store(loop.run, std::memory_order_relaxed);
  context.store(loop.context, std::memory_order_relaxed);
  pinned.store(loop.pinned, std::memory_order_relaxed);
  int64_t total = 0;
  for (int member = 0; member < count; ++member) {
    Row &row = rows[static_cast<size_t>(member)];
    const int64_t first = loop.chunks * member / count;
    const int64_t last = loop.chunks * (member + 1) / count;
    const int64_t pieces = std::min(last - first, kPieces);
    row.first.store(first, std::memory_order_relaxed);
    row.last.store(last, std::memory_order_relaxed);
    row.pieces.store(static_cast<int32_t>(pieces), std::memory_order_relaxed);
    row.left.store(uint64_t(number) << 32 | uint64_t(pieces),
                   std::memory_order_relaxed);
    total += pieces;
  }
  undone.store(total, std::memory_order_relaxed);
  current.store(number);
  current.notify_all();
  work(number, 0);
  awaitEnd();
}

void Team::serve(int member) {
  for (uint32_t seen = 0;;) {
    if (!look([&] { return current.load() != seen; }))
      current.wait(seen);
    seen = current.load();
    if (seen & 1)
      return;
    work(seen, member);
  }
}

void Team::work(uint32_t number, int member) {
  isInLoop = true;
  const int others = pinned.load(std::memory_order_relaxed) ? 1 : count;
  for (int i = 0; i < others; ++i)
    drain(number, rows[static_cast<size_t>((member + i) % count)]);
  isInLoop = false;
}

void Team::drain(uint32_t number, Row &row) {
  uint64_t left = row.left.load(std::memory_order_acquire);
  while (left >> 32 == number && uint32_t(left) > 0) {
    // Whoever is late may read another loop's numbers here, and then fails to
    // take the piece: a loop's numbers stay until its last piece is done.
    const int64_t pieces = row.pieces.load(std::memory_order_relaxed);
    const int64_t first = row.first.load(std::memory_order_relaxed);
    const int64_t chunks = row.last.load(std::memory_order_relaxed) - first;
    const auto run = function.load(std::memory_order_relaxed);
    const void *what = context.load(std::memory_order_relaxed);
    const int64_t piece = pieces - int64_t(uint32_t(left));
    if (!row.left.compare_exchange_weak(left, left - 1,
                                        std::memory_order_acq_rel))
      continue;
    run(what, first + chunks * piece / pieces,
        first + chunks * (piece + 1) / pieces);
    undone.fetch_sub(1, std::memory_order_release);
    left = row.left.load(std::memory_order_acquire);
  }
}

void Team::awaitEnd() {
  auto isOver = [&] { return undone.load(std::memory_order_acquire) == 0; };
  // Whoever has the last piece may be waiting for this very core.
  while (!look(isOver))
    sched_yield();
}

} // namespace pipec::cpu
