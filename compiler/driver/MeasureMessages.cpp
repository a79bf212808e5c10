//===- MeasureMessages.cpp - times of messages between ranks --------------===//
#include "compiler/driver/MeasureMessages.h"

#include "compiler/driver/ChainPipeline.h"
#include "compiler/plan/Profile.h"
#include "support/Failure.h"
#include "support/Phase.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace pipec {
namespace {

/// Rows of a microbatch: a step in which little is computed, of which the end
/// can be seen, and 16, 64 and 256 KiB between the stages.
constexpr std::array kRows = {1, 64, 256, 1024};
/// Of ranks that share cores, products and rows: tasks of one to some tens of
/// microseconds.
constexpr std::array kCrowd = {std::pair(1, 1), std::pair(2, 1),
                               std::pair(4, 1), std::pair(4, 16),
                               std::pair(4, 64)};

/// Short ones more often: what disturbs a core does so for milliseconds.
int stepsOf(int rows) { return std::max(40, 400 / std::max(1, rows / 32)); }
/// Those of one row, of some 60 us: 400 of them are over in one disturbance.
constexpr int kShortSteps = 1000;

using Bytes = std::vector<int64_t>;

/// What a plan's stages take of others in a microbatch: forward and backward.
std::array<Bytes, 2> bytesOf(const std::string &plan) {
  std::array<Bytes, 2> bytes;
  const nlohmann::json json = nlohmann::json::parse(plan);
  for (const auto &edge : json.at("edges")) {
    Bytes &into = bytes[edge.at("backward").get<bool>()];
    const auto stage = edge.at("to_stage").get<size_t>();
    into.resize(std::max(into.size(), stage + 1));
    into[stage] += edge.at("bytes").get<int64_t>();
  }
  return bytes;
}

} // namespace

MessageTimes measureMessages(double turnSeconds, int ranks, int repeats) try {
  const ChainPipeline chain(repeats);
  MessageTimes times;
  Phase timing("messages, size", std::ssize(kRows));
  for (int rows : kRows) {
    timing.next();
    const int steps = rows == 1 ? kShortSteps : stepsOf(rows);
    const ChainPipeline::Run run = chain.run({2, 8, rows}, steps);
    if (rows == 1) {
      // A rank alone has nobody to tell that a step ends.
      times.stepEnd = plan::stepEnd(
          ranks > 1 ? run.trace : chain.run({1, 8, rows}, steps).trace,
          turnSeconds);
      times.note = plan::noteCost(run.trace, turnSeconds);
      continue;
    }
    const auto bytes = bytesOf(run.plan);
    for (const plan::MessageGap &gap :
         plan::messageGaps(run.trace, bytes[0].at(1), bytes[1].at(0)))
      times.gaps.push_back(gap);
  }
  return times;
} catch (const nlohmann::json::exception &error) {
  throw Failure(Exit::Unavailable, error.what());
}

std::vector<plan::CrowdSample> measureCrowd(int ranks, int repeats) try {
  const ChainPipeline chain(repeats);
  std::vector<plan::CrowdSample> samples;
  Phase timing("ranks that share cores, size", std::ssize(kCrowd));
  for (auto [products, rows] : kCrowd) {
    timing.next();
    const ChainPipeline::Run run =
        chain.run({ranks, products, rows}, stepsOf(rows));
    const plan::Profile profile = plan::parseProfile(run.profile, "a profile");
    auto [forward, backward] = bytesOf(run.plan);
    forward.resize(profile.stages.size()), backward.resize(forward.size());
    if (!profile.step)
      throw Failure(Exit::Unavailable, "a profile has no step");
    plan::CrowdSample sample;
    for (size_t s = 0; s < profile.stages.size(); ++s) {
      const plan::MeasuredStage &of = profile.stages[s];
      plan::StagePlan &stage = sample.stages.emplace_back();
      stage.devices = {static_cast<int>(s)};
      stage.forwardSeconds = of.times.forwardSeconds;
      stage.backwardInputSeconds = of.times.backwardInputSeconds;
      stage.backwardWeightSeconds = of.times.backwardWeightSeconds;
      stage.receiveBytes = forward[s];
      stage.receiveGradientBytes = s > 0 ? backward[s - 1] : 0;
      sample.updates.push_back(of.updateSeconds);
    }
    sample.microbatches = ChainPipeline::kMicrobatches;
    sample.step = profile.step->seconds;
    samples.push_back(std::move(sample));
  }
  return samples;
} catch (const nlohmann::json::exception &error) {
  throw Failure(Exit::Unavailable, error.what());
}

} // namespace pipec
