//===- RegionSlots.h - a slot of each of a stage's regions ------*- C++ -*-===//
//
// An action of a large plan is one of millions, so what it says of its slots is
// a few numbers in a row, by region.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/StageAbi.h"

#include <array>
#include <cassert>
#include <cstdint>
#include <iterator>

namespace pipec::plan {

/// The regions that have slots, with the names the plan uses.
struct SlottedRegion {
  PipecRegion region;
  const char *name;
};
/// In the order of plan.json.
inline constexpr SlottedRegion kSlotted[] = {
    {PIPEC_GRAD_IN, "grad_in"}, {PIPEC_GRAD_OUT, "grad_out"},
    {PIPEC_IN, "in"},           {PIPEC_OUT, "out"},
    {PIPEC_STASH, "stash"},     {PIPEC_STATS, "stats"},
    {PIPEC_WSTASH, "wstash"},
};

/// A number of at least 0 (a slot, or how many there are) for some of the
/// slotted regions.
class RegionSlots {
public:
  RegionSlots() { numbers.fill(kNone); }

  bool has(PipecRegion region) const { return numbers[place(region)] != kNone; }
  bool empty() const { return *this == RegionSlots(); }
  /// Of a region that it has.
  int at(PipecRegion region) const { return numbers[place(region)]; }
  void set(PipecRegion region, int number) { numbers[place(region)] = number; }
  void erase(PipecRegion region) { set(region, kNone); }

  friend bool operator==(const RegionSlots &, const RegionSlots &) = default;

private:
  static constexpr int32_t kNone = -1;
  static constexpr size_t place(PipecRegion region) {
    size_t place = 0;
    while (place < std::size(kSlotted) && kSlotted[place].region != region)
      ++place;
    assert(place < std::size(kSlotted) && "a region without slots");
    return place;
  }

  std::array<int32_t, std::size(kSlotted)> numbers;
};

} // namespace pipec::plan
