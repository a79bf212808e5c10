//===- Facts.cpp - what text and page say about a plan -------------------===//
#include "report/Facts.h"

#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Pipelines.h"
#include "report/Format.h"
#include "report/Prediction.h"
#include "runtime/program/Sequence.h"
#include "support/Printable.h"

#include <algorithm>
#include <map>

namespace pipec::report {

namespace {

int64_t elements(const plan::Weight &weight) {
  int64_t n = 1;
  for (int64_t dim : weight.shape)
    n *= dim;
  return n;
}

std::string fileName(const std::string &path) {
  return path.substr(path.find_last_of('/') + 1);
}

std::string deviceKind(const plan::Cluster &cluster) {
  return cluster.kind == "cpu" ? "CPU rank" : cluster.device + " device";
}

/// "4 CPU ranks", "8 h100-sxm devices".
std::string deviceText(const plan::Cluster &cluster) {
  return plural(cluster.devices_per_server, deviceKind(cluster));
}

/// "2 servers of 4 CPU ranks", or all levels as the cluster file calls them: "2
/// servers of 2 sockets of 4 CPU ranks".
std::string clusterText(const plan::Cluster &c) {
  if (c.levels.empty())
    return plural(c.servers, "server") + " of " + deviceText(c);
  std::string text;
  for (size_t i = 0; i + 1 < c.levels.size(); ++i) {
    const auto &[name, count] = c.levels[i];
    const bool isNamed = !name.starts_with("level "); // Topology calls it so
    text += (isNamed ? plural(count, printable(name)) : std::to_string(count)) +
            " of ";
  }
  return text + plural(c.levels.back().second, deviceKind(c));
}

template <class Map> std::string settings(const Map &map) {
  std::string text;
  for (const auto &[key, value] : map) {
    text += text.empty() ? " " : ",";
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>)
      text += key + "=" + plain(value);
    else
      text += key + "=" + value;
  }
  return text;
}

} // namespace

RoleCount countRole(const plan::Plan &plan, const std::string &role) {
  RoleCount count;
  for (const plan::Weight &weight : plan.weights)
    if (weight.role == role) {
      ++count.tensors;
      count.elements += elements(weight);
    }
  return count;
}

std::string modelLine(const plan::Plan &plan) {
  int64_t nodes = 0;
  for (const plan::Stage &stage : plan.stages)
    nodes = std::max(nodes, stage.last_node + 1);
  return fileName(plan.model.path) + " · opset " +
         std::to_string(plan.model.opset) + " · " + plural(nodes, "node") +
         (plan::forwardOnly(plan) ? "" : " with the loss");
}

std::string trainedLine(const plan::Plan &plan) {
  const bool trains = !plan::forwardOnly(plan);
  RoleCount trained = countRole(plan, trains ? "weight" : "frozen");
  std::string text = plural(trained.tensors, "tensor") + " with " +
                     count(trained.elements) + " parameters" +
                     (trains ? " train" : "");
  auto add = [&](const char *role, const char *what) {
    if (RoleCount c = countRole(plan, role); c.tensors > 0)
      text += " · " + std::to_string(c.tensors) + " " + what + " (" +
              count(c.elements) + ")";
  };
  add("state", "running statistics");
  if (trains)
    add("frozen", "frozen");
  add("constant", "constant");
  return text;
}

std::vector<std::string> frozenLines(const plan::Plan &plan, int columns) {
  std::vector<std::string> names;
  for (const plan::Weight &weight : plan.weights)
    if (weight.role == "frozen" && !plan::forwardOnly(plan))
      names.push_back(weight.name);
  std::vector<std::string> lines;
  std::string line = "frozen:";
  for (size_t i = 0; i < names.size(); ++i) {
    std::string rest = " and " + std::to_string(names.size() - i) + " more";
    std::string next = (i ? ", " : " ") + shorten(names[i], columns - 20);
    if (width(line + next + rest) > columns) {
      if (lines.size() == 1) {
        line += rest;
        break;
      }
      lines.push_back(line + ",");
      line = "       ";
      next = " " + shorten(names[i], columns - 20);
    }
    line += next;
  }
  if (!names.empty())
    lines.push_back(line);
  return lines;
}

std::string trainingLine(const plan::Plan &plan) {
  const plan::Training &t = plan.training;
  const std::string kind = plan::forwardOnly(plan)
                               ? "none"
                               : t.loss + settings(t.loss_options) + " · " +
                                     t.optimizer.kind +
                                     settings(t.optimizer.options);
  std::string text = kind + " · " + plural(t.microbatches, "microbatch") +
                     " of " + plural(t.microbatch_size, "sample");
  if (t.precision != "fp32")
    text += " · products in " + t.precision;
  if (t.clip_norm > 0)
    text += " · gradient norm at most " + number(t.clip_norm);
  return text;
}

/// " · activations of stages 0-2, 5 are computed again"; empty where none are.
static std::string recomputedText(const plan::Plan &plan) {
  constexpr size_t kMost = 40; // characters
  std::vector<int> again;
  for (const plan::Stage &stage : plan.stages)
    if (stage.recompute)
      again.push_back(stage.id);
  if (again.empty())
    return "";
  std::string which;
  if (again.size() < plan.stages.size()) {
    for (size_t first = 0, next = 0; first < again.size(); first = next) {
      while (++next < again.size() && again[next] == again[next - 1] + 1)
        ;
      which += (first ? ", " : "") + std::to_string(again[first]);
      if (next - first > 1)
        which += "-" + std::to_string(again[next - 1]);
    }
    which = which.size() > kMost
                ? std::to_string(again.size()) + " stages"
                : (again.size() == 1 ? "stage " : "stages ") + which;
    which = " of " + which;
  }
  return " · activations" + which + " are computed again";
}

std::string planLine(const plan::Plan &plan) {
  const plan::Cluster &c = plan.cluster;
  std::string text = plan.strategy.name + " · " +
                     plural(static_cast<int64_t>(plan.stages.size()), "stage") +
                     " on " +
                     plural(static_cast<int64_t>(plan.ranks.size()), "rank");
  // Whatever the strategy is called: each rank has the whole model.
  if (plan.stages.size() == 1 && plan.ranks.size() > 1)
    text += " (data parallel)";
  text += " · " + clusterText(c);
  if (plan.strategy.slices > 1)
    text += " · sequences in " + std::to_string(plan.strategy.slices) +
            " pieces, stages for each";
  text += recomputedText(plan);
  if (!plan.strategy.synchronous)
    text += " · not synchronous: stages hold several weight versions";
  return text;
}

std::string layers(const plan::Stage &stage, int columns) {
  if (stage.first_name == stage.last_name)
    return shorten(stage.first_name, columns);
  // Each name by itself: cut as a whole, the two would look like one.
  const int room = columns - 3, first = width(printable(stage.first_name)),
            last = width(printable(stage.last_name)), half = room / 2;
  const int forFirst = std::max(half, room - last),
            forLast = room - std::min(first, forFirst);
  return shorten(stage.first_name, forFirst) + " … " +
         shorten(stage.last_name, forLast);
}

std::string layers(const plan::Plan &plan, size_t stage, int columns) {
  constexpr char kPart[] = " (part)";
  plan::Stage named = plan.stages[stage];
  const bool goesOn = stage > 0 && plan.stages[stage - 1].last_name ==
                                       plan.stages[stage].first_name;
  const bool isGoneOn =
      stage + 1 < plan.stages.size() &&
      plan.stages[stage + 1].first_name == plan.stages[stage].last_name;
  const bool isOne = named.first_name == named.last_name;
  if (goesOn || (isOne && isGoneOn))
    named.first_name += kPart;
  if (isGoneOn || (isOne && goesOn))
    named.last_name += kPart;
  return layers(named, columns);
}

std::string whatTakesMore(const plan::Plan &plan) {
  const schedule::ScheduleRow *row =
      schedule::findSchedule(plan.strategy.schedule);
  if (plan.strategy.name == "file")
    return "the order by hand has a line for each of " +
           plural(static_cast<int64_t>(plan.ranks.size()), "rank");
  return row && !row->replicates && !schedule::mayRepeat(*row)
             ? "more stages take more (--stages, or another --stage-file), " +
                   plan.strategy.name + " has no replicas"
             : "more stages and replicas take more (--stages, --replicas, or "
               "another --stage-file)";
}

std::string shapeText(const std::vector<int64_t> &shape) {
  std::string text;
  for (int64_t dim : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(dim);
  return "[" + text + "]";
}

std::string arrayText(const plan::Input &input) {
  if (input.batch_axis != 0 || input.shape.empty())
    return "one array " + shapeText(input.shape);
  std::string text = "[N";
  for (size_t i = 1; i < input.shape.size(); ++i)
    text += ", " + std::to_string(input.shape[i]);
  text += "]";
  if (input.upper >= 0)
    text += ", values " + std::to_string(input.lower) + " to " +
            std::to_string(input.upper - 1);
  return text;
}

std::string scheduleLine(const plan::Plan &plan) {
  std::string text = plan.schedule + " · bubble " +
                     percent(plan.predicted.bubble) +
                     " (idle share of all ranks' time in a step)";
  if (!plan.ranks.empty() && plan.ranks[0].program.kind == "stream")
    text += " · never flushes; shown: its first " +
            plural(streamWindow(plan), "microbatch");
  return text;
}

double longestTask(const plan::Plan &plan) {
  double longest = 0;
  for (const plan::Stage &stage : plan.stages)
    longest =
        std::max({longest, stage.cost.forward_s,
                  stage.cost.backward_input_s +
                      (stage.split_backward ? 0 : stage.cost.backward_weight_s),
                  stage.cost.backward_weight_s});
  return longest;
}

int64_t highestPeak(const plan::Plan &plan) {
  int64_t highest = 0;
  for (const plan::Rank &rank : plan.ranks)
    highest = std::max(highest, rank.peak_bytes);
  return highest;
}

bool areTimed(const plan::Cluster &cluster) {
  return cluster.device != "native" && cluster.device != "cpu"; // TypicalCore
}

std::string predictedLine(const plan::Plan &plan) {
  const plan::Predicted &p = plan.predicted;
  return seconds(p.step_s) + " a step · " + number(p.samples_per_s) +
         " samples/s · " + bytes(p.communication_bytes) + " sent in a step";
}

std::string baselineLine(const plan::Plan &plan, const plan::BaselineRow &row) {
  std::string name =
      row.name +
      std::string(row.name.size() < 18 ? 18 - row.name.size() : 1, ' ');
  std::string note = row.note.empty() ? "" : " (" + row.note + ")";
  if (!row.fits)
    return name + "does not fit" + note;
  if (!(row.step_s > 0))
    return name + "does not apply" + note;
  return name + seconds(row.step_s, plan.predicted.step_s) + " a step · " +
         number(row.samples_per_s) + " samples/s · " +
         ratio(row.step_s, plan.predicted.step_s) + " the time" + note;
}

std::vector<std::vector<int>> stagesOfWeights(const plan::Plan &plan) {
  std::vector<std::vector<int>> stages(plan.weights.size());
  for (const plan::Stage &stage : plan.stages)
    for (const plan::StageWeight &weight : stage.weights)
      stages[weight.weight].push_back(stage.id);
  return stages;
}

std::vector<int> stagesOfInput(const plan::Plan &plan, int input) {
  std::vector<int> stages;
  for (const plan::Stage &stage : plan.stages)
    for (const plan::StageInput &use : stage.inputs)
      if (use.input == input)
        stages.push_back(stage.id);
  return stages;
}

std::vector<RankGroup> equalRanks(const plan::Plan &plan) {
  std::map<std::vector<int64_t>, size_t> known;
  std::vector<RankGroup> groups;
  for (const plan::Rank &rank : plan.ranks) {
    std::vector<int64_t> key(rank.stages.begin(), rank.stages.end());
    key.insert(key.end(),
               {-1, rank.peak_bytes, rank.weights_bytes, rank.gradients_bytes,
                rank.optimizer_bytes, rank.stash_bytes, rank.workspace_bytes});
    auto [it, isNew] = known.insert({key, groups.size()});
    if (isNew)
      groups.emplace_back();
    groups[it->second].ranks.push_back(rank.rank);
  }
  return groups;
}

} // namespace pipec::report
