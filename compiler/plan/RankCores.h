//===- RankCores.h - ranks that take turns on cores -------------*- C++ -*-===//
//
// Of a server that has more ranks than cores each rank keeps to one core
// (runtime/run/OwnCore.h), so that the same ranks take turns in every step.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/Planner.h"

#include <map>

namespace pipec::plan {

struct RankCores {
  /// A number for the core of each device that the stages use; empty where
  /// servers have a core for each of their ranks.
  std::map<int, int> core;
  double ranksPerCore = 0; ///< of the fullest server; 0: cores of their own

  bool isScarce() const { return !core.empty(); }
};

RankCores rankCores(const Topology &topology,
                    const std::vector<StagePlan> &stages);

} // namespace pipec::plan
