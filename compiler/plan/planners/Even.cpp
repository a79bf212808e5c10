//===- Even.cpp - equal numbers of nodes ----------------------------------===//
#include "compiler/plan/Baselines.h"
#include "compiler/plan/Candidates.h"
#include "compiler/plan/ChooseRecompute.h"
#include "compiler/plan/planners/Planners.h"

#include <algorithm>

namespace pipec::plan {

Proposal proposeEven(const PlanRequest &request, const StepModel &model) {
  const StrategyFacts &facts = request.strategy;
  Split split;
  if (facts.shape == Shape::DataParallel) {
    split.replicas = {request.topology.devices()};
  } else if (!request.replicas.empty()) {
    split.replicas = request.replicas;
  } else {
    size_t places = legalStarts(request.graph).size();
    size_t most =
        std::min<size_t>(places / static_cast<size_t>(facts.chunks),
                         static_cast<size_t>(request.topology.devices()));
    size_t stages = request.stages ? static_cast<size_t>(*request.stages)
                                   : std::max<size_t>(1, most) *
                                         static_cast<size_t>(facts.chunks);
    split.replicas.assign(stages, 1);
  }
  split.starts = evenStarts(request.graph, split.replicas.size());
  split.recompute = chooseRecompute(model, split);
  return {{split}, ""};
}

} // namespace pipec::plan
