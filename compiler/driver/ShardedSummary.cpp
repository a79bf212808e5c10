#include "compiler/driver/ShardedSummary.h"

#include "compiler/driver/Extras.h"
#include "compiler/driver/FasterRows.h"
#include "compiler/plan/PeakBytes.h"
#include "report/Format.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace pipec {

bool isSharded(const plan::PlanResult &plan) {
  return std::any_of(
      plan.stages.begin(), plan.stages.end(),
      [](const plan::StagePlan &stage) { return stage.sharding.isSharded(); });
}

namespace {

/// What of a stage is divided.
struct Divided {
  size_t operators = 0, weights = 0, weightsRead = 0;
};

Divided dividedOf(const plan::PlanRequest &request,
                  const plan::StagePlan &stage) {
  Divided divided;
  if (!request.graph.sharding)
    return divided;
  for (const plan::OpSharding &node : stage.sharding.nodes)
    divided.operators += node.factor >= 0;
  const auto &weights = request.graph.sharding->weights;
  for (size_t w = 0; w < weights.size(); ++w) {
    const bool isRead = std::any_of(
        weights[w].readers.begin(), weights[w].readers.end(),
        [&](size_t n) { return stage.firstNode <= n && n <= stage.lastNode; });
    divided.weightsRead += isRead;
    divided.weights += isRead && stage.sharding.isSharded() &&
                       stage.sharding.weights[w] != plan::kWhole;
  }
  return divided;
}

std::vector<int> devicesOf(const plan::StagePlan &stage) {
  std::vector<int> devices;
  for (int leader : stage.devices)
    for (int d = 0; d < stage.sharding.degree; ++d)
      devices.push_back(leader + d);
  std::sort(devices.begin(), devices.end());
  return devices;
}

std::string of(size_t some, size_t all) {
  return std::to_string(some) + " of " + std::to_string(all);
}

std::string stageTable(const plan::PlanRequest &request,
                       const plan::PlanResult &plan) {
  report::TextTable table({"stage", ">replicas", ">group", "devices",
                           ">operators divided", ">weights divided", ">forward",
                           ">backward", ">memory"});
  double most = 0;
  for (const plan::StagePlan &stage : plan.stages)
    most = std::max(most, stage.forwardSeconds);
  const int64_t peak = plan::peakBytes(plan.stages);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const plan::StagePlan &stage = plan.stages[s];
    const Divided divided = dividedOf(request, stage);
    table.add(
        {std::to_string(s), std::to_string(stage.replicas),
         std::to_string(stage.sharding.degree),
         report::ranges(devicesOf(stage)),
         of(divided.operators, stage.lastNode - stage.firstNode + 1),
         of(divided.weights, divided.weightsRead),
         report::seconds(stage.forwardSeconds, most),
         report::seconds(
             stage.backwardInputSeconds + stage.backwardWeightSeconds, most),
         report::bytes(stage.memory.total(), peak)});
  }
  return table.text();
}

} // namespace

std::string shardedSummary(const CompileOptions &options,
                           const plan::PlanRequest &request,
                           const plan::PlanResult &plan,
                           const std::vector<plan::WhatIfRow> &rows) {
  std::string text =
      "plan       " + report::plural(plan.stages.size(), "stage") + " on " +
      report::plural(request.topology.devices(), "device") + ", strategy " +
      request.strategy.name + ", planner " + request.planner + ", " +
      report::plural(request.microbatches, "microbatch") +
      " a step; planned only: operators divided among devices are not "
      "compiled\n" +
      "predicted  step " + report::seconds(plan.stepSeconds) + ", " +
      report::number(plan.samplesPerSecond) + " samples/s, " +
      report::percent(plan.bubble) + " idle, peak " +
      report::bytes(plan::peakBytes(plan.stages)) + "\n" + "bound by   " +
      plan.bottleneck + "\n";
  for (const plan::Baseline &row : plan.baselines)
    if (row.fits) {
      const std::string why = whyNotChosen(options, row, plan);
      text += "instead    " + row.name + ": " +
              report::seconds(row.stepSeconds, plan.stepSeconds) + ", " +
              report::ratio(row.stepSeconds, plan.stepSeconds) +
              " of this step" + (why.empty() ? "" : " (" + why + ")") + "\n";
    }
  text += "\n" + stageTable(request, plan);
  if (std::any_of(
          plan.stages.begin(), plan.stages.end(),
          [](const plan::StagePlan &stage) { return !stage.sharding.isExact; }))
    text += "the choices of operators are the best that were kept of too many "
            "to compare all; they are not proven to be the best\n";
  if (!rows.empty())
    text += "\n" +
            plan::whatIfTable(
                {plan, request.strategy.name, request.strategy.chunks}, rows);
  return text;
}

namespace {

using Json = nlohmann::ordered_json;

Json operatorsJson(const plan::CostGraph &graph, const plan::StagePlan &stage) {
  Json operators = Json::array();
  for (size_t n = 0; n < stage.sharding.nodes.size(); ++n) {
    const plan::OpSharding &choice = stage.sharding.nodes[n];
    if (choice.factor < 0)
      continue;
    const size_t node = stage.firstNode + n;
    const plan::ShardingFactor &factor =
        graph.sharding->ops[node].factors[static_cast<size_t>(choice.factor)];
    Json entry = {
        {"node", node}, {"name", graph.nodes[node].name}, {"by", factor.name}};
    if (choice.scatter != plan::kWhole)
      entry["scattered"] = choice.scatter;
    operators.push_back(entry);
  }
  return operators;
}

Json weightsJson(const plan::CostGraph &graph, const plan::StagePlan &stage) {
  Json weights = Json::array();
  for (size_t w = 0; w < stage.sharding.weights.size(); ++w)
    if (stage.sharding.weights[w] != plan::kWhole)
      weights.push_back({{"name", graph.weights[w].name},
                         {"dimension", stage.sharding.weights[w]}});
  return weights;
}

} // namespace

std::string shardedJson(const plan::PlanRequest &request,
                        const plan::PlanResult &plan,
                        const std::vector<plan::WhatIfRow> &rows) {
  Json root = {{"planned_only", true},
               {"strategy", request.strategy.name},
               {"planner", request.planner},
               {"devices", request.topology.devices()},
               {"microbatches", request.microbatches},
               {"predicted",
                {{"step_s", plan.stepSeconds},
                 {"samples_per_s", plan.samplesPerSecond},
                 {"bubble", plan.bubble},
                 {"peak_bytes", plan::peakBytes(plan.stages)},
                 {"bottleneck", plan.bottleneck}}}};
  for (const plan::StagePlan &stage : plan.stages)
    root["stages"].push_back(
        {{"first_node", stage.firstNode},
         {"last_node", stage.lastNode},
         {"replicas", stage.replicas},
         {"group", stage.sharding.degree},
         {"exact", stage.sharding.isExact},
         {"devices", devicesOf(stage)},
         {"forward_s", stage.forwardSeconds},
         {"backward_s",
          stage.backwardInputSeconds + stage.backwardWeightSeconds},
         {"parameter_bytes", stage.parameterBytes},
         {"peak_bytes", stage.memory.total()},
         {"operators", operatorsJson(request.graph, stage)},
         {"weights", weightsJson(request.graph, stage)}});
  for (const plan::Baseline &row : plan.baselines)
    if (row.fits)
      root["baselines"].push_back(
          {{"name", row.name}, {"step_s", row.stepSeconds}});
  addWhatIf(root, rows);
  return root.dump(1) + "\n";
}

} // namespace pipec
