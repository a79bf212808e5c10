//===- PiperSearch.h - data, tensor and pipeline parallelism ----*- C++ -*-===//
//
// Piper's objective: stages of a closed chain of node sets, each with d
// replicas of t-way tensor parallelism and a variant per node. A stage takes
//   (compute + 2 * cut bytes / B) / d + 4 (d-1) weights / (d N B)   seconds
// per microbatch; it holds ceil(s/d) microbatches, s = the replicas of it and
// all later stages; d divides N, the replicas add up to at most N, the devices
// to at most K. The slowest stage counts.
//
// Instead of tabulating that time for every (devices, replicas), the search
// asks for a given time how few devices do (least devices for each s, one pass
// over pairs of cuts), and bisects on the time. The last plan's own time is
// then proved: no plan is faster over the same cuts and variants.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/PiperGraph.h"

namespace pipec::published {

struct PiperPlanStage {
  std::vector<int> nodes;    ///< ascending
  std::vector<int> variants; ///< of each node
  int replicas = 1, degree = 1;
  int inFlight = 1;
  double seconds = 0, bytes = 0;
};

struct PiperPlan {
  std::vector<PiperPlanStage>
      stages; ///< in data order; empty when nothing fits
  double seconds = 0;
  double bound = 0; ///< no choice of variants within this model does better
  size_t states = 0;
  bool complete = false; ///< all cuts were considered
};

/// Best plan over at most `limit` cuts.
PiperPlan searchPiper(const PiperGraph &graph, size_t limit);

/// A memory under which some plan fits, at most 0.1 % above the smallest such,
/// over the same cuts; for graphs that do not fit as they are.
double leastPiperMemory(const PiperGraph &graph, size_t limit);

/// One stage on all devices, replicated as far as the microbatches divide; inf
/// when it does not fit.
double piperDataParallel(const PiperGraph &graph);

} // namespace pipec::published
