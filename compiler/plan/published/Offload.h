//===- Offload.h - what CPUs can take over ----------------------*- C++ -*-===//
#pragma once

#include "compiler/plan/published/PlacementGraph.h"

namespace pipec::published {

/// The most accelerator time that CPUs can take over in `seconds` each, as a
/// fractional knapsack.
class Offload {
public:
  explicit Offload(const PlacementUnits &units);
  /// O(units).
  double most(double seconds, int cpus) const;

private:
  /// Of the units with the most of it for a CPU's time first: CPU seconds and
  /// accelerator seconds together.
  std::vector<std::pair<double, double>> points;
};

} // namespace pipec::published
