//===- TwoBW.cpp - the equal grid of PipeDream-2BW's planner --------------===//
//
// Every stage has the same depth in layers and the same width in replicas; the
// planner only sweeps the grid and recomputation (section 4 of the paper).
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/Baselines.h"
#include "compiler/plan/Candidates.h"
#include "compiler/plan/planners/Planners.h"

#include <algorithm>

namespace pipec::plan {

Proposal proposeTwoBW(const PlanRequest &request, const StepModel &) {
  expectFreeShape(request, "2bw");
  int devices = request.topology.devices();
  int places = static_cast<int>(std::min<size_t>(
      legalStarts(request.graph).size(), static_cast<size_t>(devices)));
  Proposal proposal;
  for (int depth = 1; depth <= places; ++depth) {
    int width = devices / depth;
    if (devices % depth != 0 ||
        (request.strategy.synchronous && width > request.microbatches))
      continue;
    Split split;
    split.starts = evenStarts(request.graph, static_cast<size_t>(depth));
    split.replicas.assign(split.starts.size(), width);
    for (bool again : {false, true}) {
      bool allowed = again ? request.recompute != Recompute::None
                           : request.recompute != Recompute::Full;
      split.recompute.assign(split.starts.size(), again);
      if (allowed)
        proposal.splits.push_back(split);
    }
  }
  return proposal;
}

} // namespace pipec::plan
