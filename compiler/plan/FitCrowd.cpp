#include "compiler/plan/FitCrowd.h"

#include "compiler/schedule/Generator.h"
#include "compiler/schedule/SharedCores.h"
#include "support/Failure.h"
#include "support/Median.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipec::plan {

double crowdedHop(double ringSeconds, double seenSeconds, double longestTask,
                  double ranksPerCore) {
  return std::min(ringSeconds, seenSeconds + longestTask * ranksPerCore);
}

namespace {

class Pipeline {
public:
  Pipeline(int ranks, int cores, int microbatches, double turn)
      : order(schedule::generate("1f1b", request(ranks, microbatches))),
        ranks(static_cast<size_t>(ranks)),
        ranksPerCore(static_cast<double>(ranks) / cores), turn(turn) {
    // As in plan/RankCores.h.
    const bool keep = ranks % cores == 0;
    for (int rank = 0; rank < ranks; ++rank) {
      sharing.shares.push_back({{keep ? rank % cores : 0, 1}});
      sharing.cores[sharing.shares.back().front().group] = keep ? 1 : cores;
    }
  }

  double step(const CrowdSample &sample, const Crowd &crowd) const {
    schedule::Costs costs;
    costs.forward.assign(ranks, crowd.factor * sample.forward + turn);
    costs.backwardInput.assign(ranks, crowd.factor * sample.backward + turn);
    costs.backwardWeight.assign(ranks, 0);
    costs.comm.assign(ranks - 1,
                      crowdedHop(crowd.ringSeconds, crowd.seenSeconds,
                                 std::max(sample.forward, sample.backward),
                                 ranksPerCore));
    costs.memoryForward = costs.memoryInput = costs.memoryWeight =
        std::vector<double>(ranks, 0);
    return schedule::simulateShared(
               order, costs, sharing,
               std::vector<double>(ranks, crowd.factor * sample.update))
        .finish.front();
  }

private:
  static schedule::ScheduleRequest request(int ranks, int microbatches) {
    schedule::ScheduleRequest request;
    request.devices = ranks;
    request.microbatches = microbatches;
    return request;
  }

  schedule::Schedule order;
  schedule::CoreSharing sharing;
  size_t ranks;
  double ranksPerCore, turn;
};

} // namespace

Crowd fitCrowd(const std::vector<CrowdSample> &samples, int ranks, int cores,
               int microbatches, double turnSeconds) {
  for (const CrowdSample &s : samples)
    if (!(s.forward > 0 && s.backward > 0 && s.step > 0))
      throw Failure(Exit::BadModel, "a calibration time is not above 0");
  const Pipeline pipeline(ranks, cores, microbatches, turnSeconds);
  std::vector<double> factors;
  for (const CrowdSample &s : samples)
    factors.push_back(s.slower);
  Crowd best{std::max(1.0, median(std::move(factors))), 0, 3e-6};
  double least = std::numeric_limits<double>::infinity();
  // Relative errors, not squared: a step that was disturbed says little.
  auto attempt = [&](const Crowd &crowd) {
    double error = 0;
    for (const CrowdSample &s : samples)
      error += std::abs(std::log(pipeline.step(s, crowd) / s.step));
    if (error < least)
      least = error, best = crowd;
  };
  // In turns: what long tasks say of the ring, and short ones of looks.
  for (int turn = 0; turn < 3; ++turn) {
    const double seen = best.seenSeconds;
    for (int r = 0; r <= 60; ++r)
      attempt({best.factor, 1e-6 * r, seen});
    for (int look = 0; look <= 60; ++look)
      attempt({best.factor, best.ringSeconds, 5e-7 * look});
  }
  return best;
}

double crowdStep(const CrowdSample &sample, const Crowd &crowd, int ranks,
                 int cores, int microbatches, double turnSeconds) {
  return Pipeline(ranks, cores, microbatches, turnSeconds).step(sample, crowd);
}

} // namespace pipec::plan
