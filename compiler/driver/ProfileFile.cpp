//===- ProfileFile.cpp - what --profile says of a model -------------------===//
#include "compiler/driver/ProfileFile.h"

#include "compiler/plan/FarStash.h"
#include "compiler/plan/FitStep.h"
#include "compiler/plan/IntervalCosts.h"
#include "compiler/plan/Profile.h"
#include "compiler/plan/StepModel.h"
#include "runtime/program/Sha256.h"
#include "support/Failure.h"
#include "support/UnknownName.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace pipec {

namespace {

/// A run as the planner sees it.
struct MeasuredPlan {
  plan::PlanRequest request;
  plan::Split split;
};

} // namespace

/// As many devices, of one server where the plan is for others.
static plan::Topology ofDevices(plan::Topology topology, int devices) {
  if (topology.devices() == devices)
    return topology;
  topology.levels = {topology.levels.back()};
  topology.levels.back().count = devices;
  return topology;
}

/// What the profile's stages were measured in, if it is in order.
static std::optional<MeasuredPlan> measuredPlan(const CompileOptions &o,
                                                const plan::Profile &profile,
                                                const plan::CostGraph &graph,
                                                const ModelFacts &facts) {
  const plan::MeasuredStep &step = *profile.step;
  const strategy::StrategyRow *row = strategy::findStrategy(step.strategy);
  auto request = row ? requestAsRun(*row, o, graph, facts, step) : std::nullopt;
  if (!request)
    return std::nullopt;
  MeasuredPlan plan{std::move(*request), {}};
  const auto replicas =
      std::accumulate(step.replicas.begin(), step.replicas.end(), int64_t{0});
  const int chunks = plan.request.strategy.chunks;
  const bool isUniform =
      std::adjacent_find(step.replicas.begin(), step.replicas.end(),
                         std::not_equal_to<>()) == step.replicas.end();
  if (replicas == 0 || replicas / chunks > plan::kMostDevices ||
      profile.stages.size() % static_cast<size_t>(chunks) != 0 ||
      (chunks > 1 && !isUniform) || plan.request.strategy.copies > 1)
    return std::nullopt;
  plan.request.topology =
      ofDevices(facts.topology, static_cast<int>(replicas / chunks));
  std::vector<size_t> &starts = plan.split.starts;
  for (const plan::MeasuredStage &stage : profile.stages)
    starts.push_back(stage.firstNode);
  const bool isAscending =
      std::adjacent_find(starts.begin(), starts.end(),
                         std::greater_equal<>()) == starts.end();
  if (starts.empty() || starts.front() != 0 || !isAscending)
    return std::nullopt;
  plan.split.replicas = step.replicas;
  plan.split.recompute = step.recompute;
  return plan;
}

/// The times of nodes without what their stash cost in that run.
static void takeOffFarStash(const plan::Profile &profile, MeasuredPlan measured,
                            plan::CostGraph &graph) {
  plan::DeviceModel &device = measured.request.topology.device;
  if (profile.origin.threads > 0)
    device.threads = profile.origin.threads;
  const plan::IntervalCosts costs(measured.request.graph);
  plan::takeOffFarStash(
      plan::StepModel(measured.request, costs).price(measured.split).stages,
      graph);
}

/// Sets the graph and the topology by the step that the profile's stages were
/// measured in. False where the planner cannot price it.
static bool fitToStep(const CompileOptions &o, const plan::Profile &profile,
                      plan::CostGraph &graph, ModelFacts &facts) try {
  auto measured = measuredPlan(o, profile, graph, facts);
  if (!measured)
    return false;
  if (!facts.topology.device.passes.empty()) {
    takeOffFarStash(profile, *measured, graph);
    measured = measuredPlan(o, profile, graph, facts);
  }
  const auto &[request, split] = *measured;
  if (request.strategy.synchronous &&
      request.topology.devices() == facts.topology.devices())
    facts.topology = plan::fitStep(request, split, profile.step->seconds);
  return true;
} catch (const Failure &failure) {
  if (!isRefusal(failure)) // no such step
    throw;
  return false;
}

/// Refuses names that no run writes. Orders of files, passes without training
/// and what else the planner cannot price leave the stages' times as they were
/// measured.
static void checkStrategy(const plan::Profile &profile) {
  const std::string &name = profile.step->strategy;
  if (strategy::findStrategy(name) || name == strategy::fileStrategy().name ||
      name == strategy::forwardStrategy().name)
    return;
  std::vector<std::string> names;
  for (const strategy::StrategyRow &row : strategy::strategies())
    names.emplace_back(row.name);
  throw Failure(Exit::BadPlan, "profile " + profile.file + ": \"step\": " +
                                   unknownName("strategy", name, names));
}

void applyProfileFile(const CompileOptions &o, ModelFacts &facts,
                      plan::CostGraph &graph) {
  if (o.profile.empty())
    return;
  const plan::Profile profile = plan::readProfile(o.profile);
  if (profile.step)
    checkStrategy(profile);
  const plan::DeviceModel &device = facts.topology.device;
  plan::ProfileOrigin asked{static_cast<int>(facts.microbatchSize),
                            device.threads, device.kind, "", o.precision};
  if (!profile.origin.modelSha256.empty())
    asked.modelSha256 = sha256OfFile(o.model);
  for (const std::string &remark : plan::applyProfile(profile, asked, graph))
    facts.notes.push_back(remark);
  // Without a step nobody knows how much of the times is of the stash.
  if (!profile.step || !fitToStep(o, profile, graph, facts))
    facts.topology.device.passes.clear();
}

} // namespace pipec
