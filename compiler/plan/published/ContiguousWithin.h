//===- ContiguousWithin.h - is there a placement within a load? -*- C++ -*-===//
#pragma once

#include "compiler/plan/published/Offload.h"
#include "compiler/plan/published/PlacementCuts.h"
#include "compiler/plan/published/PlacementSearch.h"

namespace pipec::published {

/// Asks for contiguous placements over some cuts whose loads are all at most
/// something. For each number of CPUs the cuts that so few devices reach are
/// found, accelerator by accelerator: a cut that is reached, or covered
/// (`PlacementCuts::coveredBy`) by one that is, is looked at no more. At most
/// O(cuts^2 * CPUs) pairs, most of them 64 at a time.
class ContiguousWithin {
public:
  ContiguousWithin(const PlacementUnits &units, const PlacementMachine &machine,
                   const PlacementCuts &cuts);

  /// No devices where there is none.
  PlacementPlan find(double within);

private:
  struct From {
    uint32_t cut = 0;
    bool cpu = false;
  };
  /// A transfer that the cut at hand cuts.
  struct Open {
    double cost;
    const uint64_t *settled;
    std::vector<int> waiting; ///< its ends outside
  };

  void begin(double within);
  bool addAccelerators(int left);
  void dropHopeless(int accelerators);
  bool reached(uint32_t cut, int cpus, From from);
  void mark(BitsOverCuts &bits, uint32_t cut, int cpus) const;
  bool superset(size_t k, size_t from, size_t to, const uint64_t *isDone);
  void open(uint32_t k, size_t firstWord, size_t lastWord);
  bool addCpu(uint32_t k, int cpus, int left);
  bool addAccelerator(uint32_t k, int cpus, int left);
  bool fits(size_t k, size_t j, bool isFar) const;
  PlacementPlan rebuild() const;
  size_t end() const { return cuts.size() - 1; }

  const PlacementUnits &units;
  const PlacementMachine machine;
  const PlacementCuts &cuts;
  const Offload offload;
  double load = 0, slack = 0;
  std::vector<double> offloadFor; ///< work that n CPUs take over at most
  /// [CPUs]: cuts that so many or fewer reach with the accelerators so far, or
  /// that are of no use as another is reached; the latter alone.
  BitsOverCuts done, covered;
  std::vector<std::vector<uint32_t>> level, next; ///< [CPUs]: reached last
  std::vector<std::vector<From>> origin;          ///< [CPUs][cut]
  int cpusAtEnd = 0;
  // Of the cut at hand:
  std::vector<uint64_t> above; ///< supersets not done
  std::vector<uint64_t> far;   ///< no transfer is cut here and there
  std::vector<Open> opened;
  std::vector<uint32_t> stack;
};

} // namespace pipec::published
