//===- RankCores.h - ranks that take turns on cores -------------*- C++ -*-===//
//
// Of a server whose ranks are a multiple of its cores each keeps to one core
// (takeOwnCore of runtime/run/Ranks.h), so that the same ranks take turns in
// every step. Other ranks that are more than the cores share all of them.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/Planner.h"

#include <map>

namespace pipec::plan {

struct RankCores {
  /// A number for what each device that the stages use shares with others, a
  /// core or a server's; empty where servers have a core for each of their
  /// ranks.
  std::map<int, int> group;
  std::map<int, int> cores; ///< of each group
  double ranksPerCore = 0;  ///< of the fullest server; 0: cores of their own

  bool isScarce() const { return !group.empty(); }
};

RankCores rankCores(const Topology &topology,
                    const std::vector<StagePlan> &stages);

} // namespace pipec::plan
