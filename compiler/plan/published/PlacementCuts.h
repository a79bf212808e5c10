//===- PlacementCuts.h - where a placement can be cut -----------*- C++ -*-===//
//
// A cut is a closed set of units. What a contiguous search asks of cuts, and of
// pairs of them, is laid out here once, as words of bits over all cuts.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/PlacementGraph.h"

#include <span>

namespace pipec::published {

/// Rows of a bit for each cut.
class BitsOverCuts {
public:
  BitsOverCuts() = default;
  BitsOverCuts(size_t rows, size_t cuts)
      : words((cuts + 63) / 64), bits(rows * words, 0) {}
  uint64_t *operator[](size_t row) { return bits.data() + row * words; }
  const uint64_t *operator[](size_t row) const {
    return bits.data() + row * words;
  }
  size_t words = 0;

private:
  std::vector<uint64_t> bits;
};

/// A list of numbers for each cut, one behind the other.
struct ListsOfCuts {
  std::vector<uint32_t> items;
  std::vector<size_t> begins; ///< of each, and the end
  std::span<const uint32_t> operator[](size_t cut) const {
    return {items.data() + begins[cut], begins[cut + 1] - begins[cut]};
  }
};

/// Cuts by work, then by size, so that each is before those that contain it;
/// sums over their units.
struct PlacementCuts {
  BitRows sets;
  std::vector<double> work, cpu, bytes;
  std::vector<double> crossing; ///< cost of the transfers that are cut
  std::vector<int> unsupported;
  ListsOfCuts cutTransfers; ///< ascending
  /// Units of each cut that no other of its units follows: a closed set
  /// contains the cut exactly when it contains these.
  ListsOfCuts maximal;
  /// Cuts that are of no use where this one is reached with as few devices: it
  /// has one unit more, and nothing that goes on from there gets slower.
  ListsOfCuts coveredBy;
  BitsOverCuts containing; ///< [unit]
  BitsOverCuts settled;    ///< [transfer]: all its ends are in the cut
  /// Least work and crossing together of each 64 cuts.
  std::vector<double> leastOf64;

  size_t size() const { return work.size(); }
};

/// O(sets * (units + (edges + consumers of transfers) / 64)), and what the
/// lists take.
PlacementCuts placementCuts(const PlacementUnits &units, const BitRows &sets);

/// Sets that the prefixes of a linear order form, the empty one first.
BitRows prefixSets(const PlacementUnits &units, const std::vector<int> &order);

/// All closed sets that have a unit which costs nothing wherever it is, nor
/// anything after it does, exactly when they have all before it: of any
/// placement it may move to the first device that the order leaves to it. Such
/// units, outputs that nobody reads, would multiply the sets. False where they
/// are more than `limit`.
bool allSets(const PlacementUnits &units, bool memoryBinds, size_t limit,
             BitRows &sets);

} // namespace pipec::published
