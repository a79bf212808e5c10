//===- WhatIf.h - what another cluster would give ---------------*- C++ -*-===//
#pragma once

#include "compiler/plan/Planner.h"

#include <functional>
#include <string>
#include <vector>

namespace pipec::plan {

/// One changed condition, planned afresh.
struct WhatIfRow {
  std::string axis;  ///< "devices", "bandwidth", "microbatches", "memory" …
  std::string value; ///< "16", "x0.5", "64", "40 GiB", "zb-h1"
  bool fits = false;
  double stepSeconds = 0, samplesPerSecond = 0;
  std::string strategy = ""; ///< that it is planned with
  std::string shape = "";    ///< replicas of the stages, "3-1"
  std::string note = "";     ///< why not, when it does not fit
  int64_t peakBytes = 0;     ///< of the fullest device, by the estimate
  bool isCounted = false;    ///< as a compile counts them
  bool isClose = false;      ///< Replanned::isClose; then not in peakBytes
};

/// A plan under other conditions.
struct Replanned {
  PlanResult result;
  std::string strategy; ///< as --strategy names it
  int chunks = 1;       ///< stages on each device
  /// It fits only where what tasks work in is left out of the estimate. A
  /// compile counts what they do, and may find that it does not.
  bool isClose = false;
  int64_t counted = 0; ///< bytes of the fullest device; 0: by the estimate
};

/// Another way to train the same model on the same devices.
struct Alternative {
  std::string name;
  /// Throws as makePlan does. Others are called at the same time.
  std::function<Replanned()> plan;
};

/// Plans a request whose conditions are others: where more than the request
/// decides, as about an order that was found for one. Called by several threads
/// at a time.
using PlanAgain = std::function<Replanned(const PlanRequest &)>;

/// makePlan().
Replanned planAfresh(const PlanRequest &request);

/// Plans the request with half, twice and four times the devices or
/// microbatches, a tenth to ten times the bandwidth, half and twice the memory,
/// and with the other `strategies`, the fastest first: one table. `axes` is a
/// comma-separated choice of these; Failure(Exit::Usage) for another. A split
/// or replicas given by hand are dropped where the devices change. More
/// devices, bandwidth or memory are never worse than `own`, the request's plan:
/// they may be left unused.
std::vector<WhatIfRow> whatIf(const PlanRequest &request, const Replanned &own,
                              const std::string &axes,
                              const std::vector<Alternative> &strategies = {},
                              const PlanAgain &plan = planAfresh);

/// Whether `axes` names the strategies.
bool comparesStrategies(const std::string &axes);

/// The axes in "devices,bandwidth". Failure(Exit::Usage) for an unknown or
/// repeated one, or none.
std::vector<std::string> whatIfAxes(const std::string &axes);

/// The rows as an aligned table, the request's own step first.
std::string whatIfTable(const Replanned &own,
                        const std::vector<WhatIfRow> &rows);

} // namespace pipec::plan
