//===- ChooseRecomputeTest.cpp - stages that compute again ----------------===//
#include "compiler/plan/ChooseRecompute.h"
#include "BruteForce.h"
#include "RandomGraphs.h"
#include "compiler/plan/Baselines.h"
#include "compiler/plan/Candidates.h"
#include "compiler/plan/PeakBytes.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

PlanRequest requestFor(CostGraph graph, const std::string &strategy,
                       int devices, int microbatches) {
  PlanRequest r;
  r.graph = std::move(graph);
  r.topology = oneServer(devices, 1e8, 1e-6);
  r.strategy = strategyFacts(strategy);
  r.microbatches = microbatches;
  r.recompute = Recompute::Auto;
  r.baselines = false;
  return r;
}

int64_t peakWith(const StepModel &model, Split split,
                 const std::vector<bool> &recompute) {
  split.recompute = recompute;
  return model.peakOf(split);
}

/// Seconds of a microbatch that the forwards of these stages take.
double secondsOf(const StepModel &model, const Split &split,
                 const std::vector<bool> &recompute) {
  double seconds = 0;
  for (size_t s = 0; s < recompute.size(); ++s)
    if (recompute[s])
      seconds += model.costOf(split, s).forwardSeconds;
  return seconds;
}

/// Step of a plan, +inf where nothing fits.
double stepOf(PlanRequest request, Recompute recompute) {
  request.recompute = recompute;
  try {
    return makePlan(request).stepSeconds;
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::NoFit) << failure.what();
    return inf;
  }
}

} // namespace

/// Under limits between what all and none of the stages take: the choice fits
/// where one does, and no other that fits takes less time.
TEST(ChooseRecompute, EqualsBruteForce) {
  Random random(5);
  int some = 0, shared = 0;
  for (int round = 0; round < rounds(600); ++round) {
    const char *strategies[] = {"1f1b", "gpipe", "zb-h1", "zb-v",
                                "interleaved-1f1b"};
    PlanRequest r =
        requestFor(randomGraph(random, random.between(6, 12)),
                   strategies[round % 5], 2, 2 * random.between(2, 4));
    IntervalCosts costs(r.graph);
    Split split;
    const size_t stages = r.strategy.chunks > 1 ? 4 : 2;
    split.starts = evenStarts(r.graph, stages);
    if (split.starts.size() != stages)
      continue;
    split.replicas.assign(stages, 1);
    const StepModel free(r, costs);
    const int64_t all = peakWith(free, split, std::vector<bool>(stages, true)),
                  none = peakWith(free, split, std::vector<bool>(stages));
    if (all >= none)
      continue;
    r.memoryLimit = all + static_cast<int64_t>(random.real(0, 1) *
                                               static_cast<double>(none - all));
    const StepModel model(r, costs);
    const std::vector<bool> chosen = chooseRecompute(model, split);
    EXPECT_LE(peakWith(model, split, chosen), r.memoryLimit) << round;
    double least = inf;
    for (unsigned bits = 0; bits < 1u << stages; ++bits) {
      std::vector<bool> other(stages);
      for (size_t s = 0; s < stages; ++s)
        other[s] = bits >> s & 1;
      if (peakWith(model, split, other) <= r.memoryLimit)
        least = std::min(least, secondsOf(model, split, other));
    }
    EXPECT_NEAR(secondsOf(model, split, chosen), least, 1e-9 * least) << round;
    const auto count = std::ranges::count(chosen, true);
    some += count > 0 && count < std::ssize(chosen);
    shared += stages > 2 && count > 0;
  }
  EXPECT_GT(some, 100);
  EXPECT_GT(shared, 50);
}

TEST(ChooseRecompute, NothingIsComputedAgainThatFits) {
  PlanRequest r = requestFor(uniformChain(8, 1e-3, 4000, 1000), "1f1b", 2, 4);
  IntervalCosts costs(r.graph);
  const Split split{{0, 4}, {1, 1}, {}};
  r.memoryLimit = StepModel(r, costs).peakOf(split);
  EXPECT_EQ(chooseRecompute(StepModel(r, costs), split),
            std::vector<bool>({false, false}));
  // The first stage has more microbatches in flight.
  --r.memoryLimit;
  EXPECT_EQ(chooseRecompute(StepModel(r, costs), split),
            std::vector<bool>({true, false}));
  r.recompute = Recompute::Full;
  EXPECT_EQ(chooseRecompute(StepModel(r, costs), split),
            std::vector<bool>({true, true}));
}

/// A choice for each stage is never slower than the same for all of them, and
/// faster where a part of them is enough.
TEST(ChooseRecompute, PlansAreNeverSlowerThanOfAllOrNone) {
  Random random(6);
  int faster = 0, kept = 0;
  for (int round = 0; round < rounds(300); ++round) {
    const char *strategies[] = {"1f1b", "gpipe", "zb-h1"};
    PlanRequest r = requestFor(randomGraph(random, random.between(4, 9)),
                               strategies[round % 3], 3, random.between(3, 8));
    r.stages = 3;
    r.replication = false;
    if (legalStarts(r.graph).size() < 3)
      continue;
    r.recompute = Recompute::None;
    r.memoryLimit = -1;
    const int64_t most = peakBytes(makePlan(r).stages);
    r.memoryLimit =
        static_cast<int64_t>(random.real(0.4, 1.1) * static_cast<double>(most));
    const double none = stepOf(r, Recompute::None),
                 full = stepOf(r, Recompute::Full),
                 each = stepOf(r, Recompute::Auto);
    if (std::min(none, full) < inf)
      EXPECT_LE(each, std::min(none, full) * (1 + 1e-9)) << round;
    kept += each == none;
    faster += each < std::min(none, full) * 0.99;
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(faster, 20);
}
