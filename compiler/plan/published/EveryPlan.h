//===- EveryPlan.h - every plan under a limit -------------------*- C++ -*-===//
//
// A stage keeps a copy for every so many devices behind it that compute. So
// machines of any level may be idle that a plan without a limit would use, in
// one component and not in another, and the search is from the end of the model
// on over the devices that are used, not over the machines.
//
// Fewer devices and machines behind a stage are never worse. With plans as good
// as equal up to a time that nothing is below, and none wanted above a little
// more, hardly more than one number of devices is left for each of machines.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/EveryComponents.h"

namespace pipec::published {

/// Of two levels and more.
class EveryPlan {
public:
  explicit EveryPlan(EverySearch &search);

  /// A plan of the search's cap at most, none faster than that or the floor;
  /// none where there is none, or where it was not found before the effort was
  /// spent, which is below zero then.
  PipeDreamPlan solve();

private:
  static constexpr double none = std::numeric_limits<double>::infinity();
  /// From a state to the end on so many of the outermost machines, and as many
  /// devices that are used: the first of these stages, on some of them, each
  /// with so many devices, and the entry behind it.
  struct Entry {
    double seconds;
    int machines, devices;
    uint32_t end;
    int used, inEach;
    uint32_t behind;
  };
  /// Entries with the same devices, of growing machines.
  struct Equal {
    const Entry *begin, *end;
    int devices() const { return begin->devices; }
  };
  std::vector<Entry> &offered(size_t state, int machines) {
    return offers[state * (static_cast<size_t>(outer.machines) + 1) +
                  static_cast<size_t>(machines)];
  }
  void collect(size_t state);
  void expand(size_t state);
  void beginStages(size_t state, Equal behind, int used);
  void offer(size_t state, const Entry &entry);
  bool leavesEnough(size_t state, int machines, int devices) const;
  AskedComponents asked(size_t end, int devices, int used) const;
  std::vector<PipeDreamGroup> stages(const Entry &entry);

  EverySearch &search;
  const PipeDreamLevel outer;
  const int each; ///< devices of an outermost machine
  const int
      inAStage; ///< machines that the first stage's exchange is divided by
  EveryComponents components;
  std::vector<std::vector<Entry>> offers; ///< of a state and machines
  std::vector<std::vector<Entry>> fronts; ///< of a state
  std::vector<double> least; ///< seconds with at most so many devices
};

} // namespace pipec::published
