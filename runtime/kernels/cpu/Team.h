//===- Team.h - threads that share a loop -----------------------*- C++ -*-===//
//
// A thread that runs loops has a team of its own, itself and helpers. A loop is
// cut into a row of pieces for every member, which takes its own from the front
// and then what others have left: a member whose core does something else holds
// up the piece in its hands, not its share.
//
//   member 0   [0 1 2 3]           takes 0 1 2 3, then 6
//   member 1   [4 5 6 7]  asleep … takes 4 5, then 7
//
// Who runs a piece is chance; what is a piece, and what it computes, is not.
// Helpers look for the next loop for a while (kLooks) and then sleep.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

namespace pipec::cpu {

/// A loop over [0, chunks) in ranges.
struct Loop {
  void (*run)(const void *context, int64_t lo, int64_t hi);
  const void *context;
  int64_t chunks;
  /// Every member runs its own piece; needs chunks = the team's threads.
  bool pinned = false;
};

class Team {
public:
  explicit Team(int threads);
  ~Team();

  /// Runs the loop and returns when all of it is done. The caller is the thread
  /// that made the team, outside of any loop.
  void run(const Loop &loop);

  int threads() const { return count; }

  /// The calling thread's team, of `threads` members.
  static Team &ofThisThread(int threads);
  /// Whether the calling thread is inside a loop.
  static bool inLoop();

private:
  /// The pieces of a loop that a member has not been relieved of. On a cache
  /// line of its own.
  struct alignas(64) Row {
    /// Number of the loop (high half), pieces left (low half): one word, so
    /// that nobody who is late takes a piece of another loop.
    std::atomic<uint64_t> left{0};
    std::atomic<int32_t> pieces{0};
    /// Chunks [first, last).
    std::atomic<int64_t> first{0}, last{0};
  };

  void serve(int member);
  void work(uint32_t number, int member);
  void drain(uint32_t number, Row &row);
  void awaitEnd();

  /// Members, the maker included.
  int count = 1;
  std::unique_ptr<Row[]> rows;
  std::unique_ptr<std::thread[]> helpers;

  // What a loop is; written between loops. Atomic because who is late may
  // look, and then finds nothing to take.
  std::atomic<decltype(Loop::run)> function{nullptr};
  std::atomic<const void *> context{nullptr};
  std::atomic<bool> pinned{false};

  /// The current loop's number; an odd one ends the team.
  alignas(64) std::atomic<uint32_t> current{0};
  /// Pieces of the current loop that are not done.
  alignas(64) std::atomic<int64_t> undone{0};
};

} // namespace pipec::cpu
