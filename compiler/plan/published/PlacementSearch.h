//===- PlacementSearch.h - smallest largest load of a device ----*- C++ -*-===//
//
// Objective of dnn-partitioning: a device's load is the compute of its nodes
// plus, on an accelerator, every output that leaves it once and every output
// that enters it once. The largest load is the time per sample of a full
// pipeline.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/PlacementGraph.h"

namespace pipec::published {

/// What each device gets; empty devices are left out.
struct PlacementPlan {
  double load = 0;
  struct Device {
    std::vector<int> units;
    bool cpu = false;
    double load = 0;
  };
  std::vector<Device> devices; ///< in pipeline order when contiguous
  size_t states = 0;           ///< cuts considered
  bool exact = false;          ///< proved optimal for its shape
};

struct PlacementMachine {
  int accelerators = 1, cpus = 0;
  double bytes = 0; ///< of an accelerator
};

/// Best contiguous placement: exact over all closed sets of the order when they
/// are at most `limit`, over the prefixes of linear orders otherwise. No
/// devices when nothing fits.
PlacementPlan searchContiguous(const PlacementUnits &units,
                               const PlacementMachine &machine, size_t limit);

/// The bytes without which no contiguous placement on accelerators alone fits;
/// exact when the closed sets are at most `limit`.
double leastContiguousBytes(const PlacementUnits &units,
                            const PlacementMachine &machine, size_t limit);

/// A placement of any shape on accelerators alone whose largest bytes are
/// small: the smallest there is when branch and bound ends in time.
PlacementPlan packBytes(const PlacementUnits &units,
                        const PlacementMachine &machine);

/// Improves a placement without asking for contiguity, by moves and swaps of
/// units that lower the largest load (deterministic, `effort` moves tried).
PlacementPlan searchFree(const PlacementUnits &units,
                         const PlacementMachine &machine,
                         const PlacementPlan &start, long effort);

/// Branch and bound over the placements of any shape of a small graph: `plan`
/// becomes the best there is and `exact`, or stays as it is when the tree is
/// too large.
void proveFree(const PlacementUnits &units, const PlacementMachine &machine,
               PlacementPlan &plan);

/// The placement that deviceOf[unit] describes: accelerators first, then CPUs.
PlacementPlan placementOf(const PlacementUnits &units,
                          const PlacementMachine &machine,
                          const std::vector<int> &deviceOf);

/// Load of a set of units on an accelerator or a CPU; member[u] says who is in.
double placementLoad(const PlacementUnits &units,
                     const std::vector<char> &member, bool cpu);

/// No placement of any shape is below this: work that CPUs can take off the
/// accelerators at best, the rest spread evenly, and the largest single unit.
double placementBound(const PlacementUnits &units,
                      const PlacementMachine &machine);

} // namespace pipec::published
