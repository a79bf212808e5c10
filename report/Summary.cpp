//===- Summary.cpp - a plan on a terminal --------------------------------===//
#include "compiler/schedule/Render.h"
#include "report/Facts.h"
#include "report/Format.h"
#include "report/Prediction.h"
#include "report/Report.h"
#include "runtime/program/Memory.h"
#include "runtime/program/Sequence.h"
#include "support/CoreUse.h"

#include <algorithm>
#include <cmath>

namespace pipec::report {

namespace {

constexpr size_t kRowsOnAScreen = 12;
constexpr int kTimelineRanks = 16;

/// "model       text".
std::string field(const std::string &name, const std::string &text) {
  return name + std::string(name.size() < 11 ? 11 - name.size() : 1, ' ') +
         text + "\n";
}

std::string header(const plan::Plan &plan, const TextOptions &options) {
  const int room = std::max(20, options.width - 11);
  std::string text = field("model", shorten(modelLine(plan), room));
  text += field("weights", trainedLine(plan));
  for (const std::string &line : frozenLines(plan, room))
    text += field("", line);
  text += field("training", trainingLine(plan));
  text += field("plan", planLine(plan));
  const auto used = static_cast<int>(plan.ranks.size());
  const int there = plan.cluster.servers * plan.cluster.devices_per_server;
  if (used < there)
    text += field("unused", std::to_string(there - used) + " of " +
                                std::to_string(there) + " devices; " +
                                whatTakesMore(plan));
  return text;
}

std::string stageTable(const plan::Plan &plan, size_t limit, int columns) {
  const bool split = std::any_of(plan.stages.begin(), plan.stages.end(),
                                 [](auto &s) { return s.split_backward; });
  const bool trains = !plan::forwardOnly(plan);
  std::vector<std::string> names = {"stage", "layers",      ">nodes",
                                    "ranks", ">parameters", ">F"};
  if (trains)
    names.push_back(">B");
  if (split)
    names.push_back(">W");
  TextTable table(names);
  const double longest = longestTask(plan);
  for (const plan::Stage &stage : plan.stages) {
    double backward = stage.cost.backward_input_s +
                      (split ? 0 : stage.cost.backward_weight_s);
    std::vector<std::string> row = {
        std::to_string(stage.id),
        layers(plan, static_cast<size_t>(stage.id), columns - 62),
        count(stage.last_node - stage.first_node + 1),
        ranges(stage.ranks),
        count(stage.parameters),
        seconds(stage.cost.forward_s, longest)};
    if (trains)
      row.push_back(seconds(backward, longest));
    if (split)
      row.push_back(seconds(stage.cost.backward_weight_s, longest));
    table.add(row);
  }
  return table.text(limit);
}

std::string memoryTable(const plan::Plan &plan, size_t limit) {
  const auto shown = [peak = highestPeak(plan)](int64_t n) {
    return bytes(n, peak);
  };
  if (plan::forwardOnly(plan)) { // nothing is kept for a backward pass
    TextTable table(
        {"rank", ">peak", ">workspace", ">weights, inputs, outputs"});
    for (const RankGroup &group : equalRanks(plan)) {
      const plan::Rank &rank = plan.ranks[group.ranks[0]];
      table.add({ranges(group.ranks), shown(rank.peak_bytes),
                 shown(rank.workspace_bytes),
                 shown(rank.peak_bytes - rank.workspace_bytes)});
    }
    return table.text(limit);
  }
  TextTable table({"rank", ">peak", ">weights", ">gradients", ">optimizer",
                   ">stash", ">workspace", ">other"});
  for (const RankGroup &group : equalRanks(plan)) {
    const plan::Rank &rank = plan.ranks[group.ranks[0]];
    table.add({ranges(group.ranks), shown(rank.peak_bytes),
               shown(rank.weights_bytes), shown(rank.gradients_bytes),
               shown(rank.optimizer_bytes), shown(rank.stash_bytes),
               shown(rank.workspace_bytes), shown(rank.other_bytes)});
  }
  return table.text(limit);
}

std::string timelineText(const plan::Plan &plan, const TextOptions &options,
                         int maxRanks) {
  auto prediction = predict(plan);
  if (!prediction || prediction->schedule.devices() > maxRanks)
    return "";
  schedule::RenderOptions render;
  render.width = options.width;
  render.color = options.color;
  render.devices = maxRanks;
  return renderTimeline(prediction->schedule, prediction->timeline, render) +
         timelineLegend(prediction->schedule);
}

std::string outlook(const plan::Plan &plan) {
  std::string text = field(
      "predicted",
      predictedLine(plan) +
          (areTimed(plan.cluster) ? "" : " · by cores that nobody has timed"));
  if (!plan.predicted.bottleneck.empty())
    text += field("bound by", plan.predicted.bottleneck);
  if (!plan.predicted.second.empty())
    text += field("next best", plan.predicted.second);
  bool first = true;
  for (const plan::BaselineRow &row : plan.baselines) {
    text += field(first ? "instead" : "", baselineLine(plan, row));
    first = false;
  }
  return text;
}

std::string tensorTable(const plan::Plan &plan) {
  TextTable table({"tensor", "role", "type", "shape", ">bytes", "stages"});
  auto stages = stagesOfWeights(plan);
  for (size_t w = 0; w < plan.weights.size(); ++w) {
    const plan::Weight &weight = plan.weights[w];
    table.add({weight.name, weight.role, weight.dtype, shapeText(weight.shape),
               bytes(weight.bytes), ranges(stages[w])});
  }
  return table.text();
}

/// What each microbatch sends over the cuts. A gradient is named by the node
/// whose backward makes it.
std::string transferTable(const plan::Plan &plan) {
  TextTable table({"edge", "made by", "what", ">from", ">to", ">bytes"});
  for (const plan::Edge &edge : plan.edges)
    table.add({std::to_string(edge.id), edge.value,
               edge.backward ? "gradient" : "activation",
               std::to_string(edge.from_stage), std::to_string(edge.to_stage),
               bytes(edge.bytes)});
  return table.text();
}

/// Weights of several stages, whose gradients are no edges: no task makes the
/// sum.
std::string tiedTable(const plan::Plan &plan) {
  const std::string when = plan.strategy.update == "round"
                               ? "added up before every update"
                               : "added up once a step";
  TextTable table({"tied weight", ">bytes", "stages", "gradients"});
  bool any = false;
  auto stages = stagesOfWeights(plan);
  // Pieces of a sequence use the weights that their stage has anyhow.
  const auto whole =
      static_cast<int>(plan.stages.size()) / std::max(1, plan.strategy.slices);
  for (size_t w = 0; w < plan.weights.size(); ++w) {
    const plan::Weight &weight = plan.weights[w];
    std::erase_if(stages[w], [&](int stage) { return stage >= whole; });
    if (weight.role != "weight" || stages[w].size() < 2)
      continue;
    any = true;
    table.add({weight.name, bytes(weight.bytes), ranges(stages[w]),
               when + ", between these stages"});
  }
  return any ? "\n" + table.text() : "";
}

std::string inputTable(const plan::Plan &plan) {
  TextTable table({"input", "type", "shape", "stages", "array"});
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const plan::Input &input = plan.inputs[i];
    table.add({input.name, input.dtype, shapeText(input.shape),
               ranges(stagesOfInput(plan, static_cast<int>(i))),
               arrayText(input)});
  }
  return table.text();
}

} // namespace

std::string summary(const plan::Plan &plan, const TextOptions &options) {
  std::string text = header(plan, options) + "\n" +
                     stageTable(plan, kRowsOnAScreen, options.width) + "\n" +
                     memoryTable(plan, kRowsOnAScreen) + "\n" +
                     field("schedule", scheduleLine(plan));
  text += timelineText(plan, options, kTimelineRanks);
  return text + "\n" + outlook(plan);
}

std::string inspectText(const plan::Plan &plan, const TextOptions &options) {
  std::string text = header(plan, options) + "\n" +
                     stageTable(plan, SIZE_MAX, std::max(options.width, 120)) +
                     "\n" + memoryTable(plan, SIZE_MAX) + "\n" +
                     field("schedule", scheduleLine(plan)) +
                     timelineText(plan, options, 256) + "\n" + outlook(plan);
  text += "\n" + inputTable(plan);
  if (!plan.edges.empty())
    text += "\n" + transferTable(plan);
  if (!plan::forwardOnly(plan))
    text += tiedTable(plan);
  return text + "\n" + tensorTable(plan);
}

/// Of a processor whose steps say that it was not equally fast all the time.
static std::string unsteady(const plan::Plan &plan, const MeasuredRun &run) {
  if (plan.cluster.kind != "cpu" || run.slow_step_s <= 1.15 * run.quick_step_s)
    return "";
  return "half of the steps took from " +
         seconds(run.quick_step_s, run.slow_step_s) + " to " +
         seconds(run.slow_step_s) +
         ", the others less or more: these cores are not equally fast all the "
         "time, and no prediction is closer than that\n";
}

/// What would make a prediction true: cores that nobody else takes, and, where
/// these do not make up for it, times of a processor that has been timed.
static std::string remedy(const plan::Plan &plan, const MeasuredRun &run) {
  constexpr double kTrue = 0.15;
  const double longer =
      plan.predicted.step_s > 0 ? run.step_s / plan.predicted.step_s : 1;
  if (std::abs(longer - 1) <= kTrue)
    return "";
  std::string text;
  if (plan.cluster.kind == "cpu" && longer > 1 &&
      run.others_share >= kNoticedShare) {
    text = "other programs had " + percent(run.others_share) +
           " of this machine's cores: the prediction counts on all of them\n";
    if (longer * (1 - run.others_share) <= 1 + kTrue)
      return text;
  }
  if (areTimed(plan.cluster))
    return text + unsteady(plan, run);
  const std::string grid = std::to_string(plan.cluster.servers) + "x" +
                           std::to_string(plan.cluster.devices_per_server);
  return text + "nobody has timed these cores: pipec calibrate --cpus " + grid +
         " -o cluster.json, then compile with --cluster "
         "cluster.json instead of --cpus\n";
}

std::string runSummary(const plan::Plan &plan, const MeasuredRun &run) {
  TextTable table({"", ">predicted", ">measured", ">ratio"});
  table.add({"step", seconds(plan.predicted.step_s),
             seconds(run.step_s, plan.predicted.step_s),
             ratio(run.step_s, plan.predicted.step_s)});
  table.add({"samples/s", number(plan.predicted.samples_per_s),
             number(run.samples_per_s),
             ratio(run.samples_per_s, plan.predicted.samples_per_s)});
  const int64_t peak = highestPeak(plan);
  for (const MeasuredRank &rank : run.ranks) {
    if (rank.peak_bytes == 0 ||
        rank.rank >= static_cast<int>(plan.ranks.size()))
      continue;
    int64_t predicted = plan.ranks[rank.rank].peak_bytes;
    table.add({"peak of rank " + std::to_string(rank.rank),
               bytes(predicted, peak), bytes(rank.peak_bytes, peak),
               rank.peak_bytes == predicted
                   ? "equal"
                   : ratio(static_cast<double>(rank.peak_bytes),
                           static_cast<double>(predicted))});
    if (rank.overhead_bytes)
      table.add({"  context, libraries, code", "",
                 bytes(rank.overhead_bytes, peak), ""});
  }
  return table.text() + remedy(plan, run);
}

} // namespace pipec::report
