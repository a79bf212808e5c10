//===- FlatPlan.h - one level's plans under a limit -------------*- C++ -*-===//
//
// What a stage keeps depends on the devices behind it. So the search is from
// the end of the model on: an entry is the best time from a state to the end on
// so many devices, whatever stands before it (EveryPlan.h says more).
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/RowWithin.h"

namespace pipec::published {

class FlatPlan {
public:
  explicit FlatPlan(EverySearch &search);

  /// A plan of the search's cap at most, none faster than that or the floor;
  /// none where there is none, or where it was not found before the effort was
  /// spent, which is below zero then.
  PipeDreamPlan solve();

private:
  static constexpr double none = std::numeric_limits<double>::infinity();
  /// From a state to the end on so many devices: the first of these stages,
  /// where it ends, and the entry behind it.
  struct Entry {
    double seconds;
    int devices, replicas;
    uint32_t end, behind;
  };
  void begin(size_t k, size_t j);
  int leastReplicas(double kept, double busiest, int behind) const;
  bool leavesEnough(size_t state, int devices) const;
  PipeDreamPlan unwind() const;

  EverySearch &search;
  const int machines;
  const double bandwidth;
  std::vector<std::vector<Entry>> fronts; ///< of a state, by devices
  std::vector<Entry> offers;              ///< of one state, with each number
};

} // namespace pipec::published
