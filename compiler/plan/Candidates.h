//===- Candidates.h - which shapes of pipeline to try -----------*- C++ -*-===//
#pragma once

#include "compiler/plan/StepModel.h"

namespace pipec::plan {

/// How many stages with how many replicas, and how they lie on the cluster.
struct Shape2D {
  std::vector<int> replicas;
  bool pipelinesInside = false;
  bool operator==(const Shape2D &) const = default;
};

/// Shapes that the request allows, without duplicates: what was asked for, or
/// equal grids of every depth and the unequal ones that the replica search
/// finds.
std::vector<Shape2D> candidateShapes(const PlanRequest &request,
                                     const StepModel &model);

/// Devices of parts of the cluster: one device, components of each level, and
/// two, four … of them. Not of the whole.
std::vector<int> partsOf(const Topology &topology);

/// Throws Failure(Exit::Usage) when more stages are asked for than the model
/// has places to start one, or the strategy cannot have that many.
void checkStageCount(const PlanRequest &request, size_t starts);

/// At most `want` of the starts: the cheapest cut in each share of the work.
/// At least `fewest` of them, which a few nodes with most of the work would
/// not leave, or all where that takes more than `want`.
std::vector<size_t> coarseStarts(const CostGraph &graph,
                                 const std::vector<size_t> &starts, size_t want,
                                 size_t fewest = 0);

/// How many starts the exact search can afford for this request.
size_t mostStarts(const PlanRequest &request);

/// Places that leave as many stages a choice.
constexpr size_t placesFor(size_t stages) { return stages + stages / 2; }

} // namespace pipec::plan
