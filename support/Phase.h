//===- Phase.h - what the program is doing ----------------------*- C++ -*-===//
//
// Whoever works for long, in whatever library, says so by phases, which lie in
// each other:
//
//   const Phase phase("planning");
//   Phase strategies("strategy", rows.size());
//   for (const Row &row : rows) {
//     strategies.next();
//     const Phase one(row.name); // planning: strategy 7 of 24, zb-v
//     ...
//
// Who shows them is told by support/ProgressLine.h; while nobody does they cost
// next to nothing. No result may depend on them.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pipec {

/// Under way for as long as it lives.
class Phase {
public:
  /// A total with which counts are shares: "searching orders 45 %".
  static constexpr int64_t kPercent = -1;

  /// `total`: of what is counted; 0 where nobody knows.
  explicit Phase(std::string_view name, int64_t total = 0);
  ~Phase();
  Phase(const Phase &) = delete;
  Phase &operator=(const Phase &) = delete;

  /// The next of them begins.
  void next() { number.fetch_add(1, std::memory_order_relaxed); }
  /// Number `n` begins, from 1.
  void at(int64_t n) { number.store(n, std::memory_order_relaxed); }

  /// "strategy 7 of 24"; "strategy" before the first, or where there is one;
  /// "searching orders 0 %" at the beginning of a share.
  std::string text() const;

  /// While one lives, phases that begin in its thread are not listed.
  class Silence {
  public:
    Silence();
    ~Silence();
    Silence(const Silence &) = delete;
    Silence &operator=(const Silence &) = delete;
  };

  /// While one lives, phases are listed.
  class Audience {
  public:
    Audience();
    ~Audience();
    Audience(const Audience &) = delete;
    Audience &operator=(const Audience &) = delete;
  };

private:
  std::string name;
  const int64_t total;
  std::atomic<int64_t> number{0};
  bool isListed = false;
};

/// Texts of the phases that have begun while they have an audience, those that
/// others lie in first.
std::vector<std::string> phasesUnderWay();

} // namespace pipec
