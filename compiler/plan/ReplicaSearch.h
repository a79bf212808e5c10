//===- ReplicaSearch.h - how many replicas each stage gets ------*- C++ -*-===//
#pragma once

#include "compiler/plan/Candidates.h"

namespace pipec::plan {

/// Unequally replicated pipelines worth a closer look, best first, without
/// duplicates. A dynamic program over (first node, devices used from there on),
/// after PipeDream's (SOSP'19 section 3.1) but with the strategy's own memory,
/// fill time and all-reduce; on large clusters cuts, replica counts and labels
/// are thinned, and ChainSearch places the cuts exactly afterwards.
std::vector<Shape2D> unequalShapes(const PlanRequest &request,
                                   const StepModel &model);

} // namespace pipec::plan
