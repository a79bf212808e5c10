#include "compiler/plan/command/PartitionOutput.h"

#include "compiler/plan/PlanDot.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <map>

namespace pipec {

using published::Partition;
using published::PartitionStage;

namespace {

std::string format(const char *pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

/// "0-3,8" for sorted or unsorted device numbers.
std::string ranges(std::vector<int> devices) {
  std::sort(devices.begin(), devices.end());
  std::string text;
  for (size_t i = 0; i < devices.size();) {
    size_t j = i;
    while (j + 1 < devices.size() && devices[j + 1] == devices[j] + 1)
      ++j;
    text += (text.empty() ? "" : ",") + std::to_string(devices[i]);
    if (j > i)
      text += "-" + std::to_string(devices[j]);
    i = j + 1;
  }
  return text;
}

void row(std::string &out, const std::vector<std::string> &cells,
         const std::vector<size_t> &width) {
  for (size_t c = 0; c < cells.size(); ++c) {
    if (c)
      out += "  ";
    size_t pad = width[c] - std::min(width[c], cells[c].size());
    bool last = c + 1 == cells.size();
    out += (last ? "" : std::string(pad, ' ')) + cells[c];
  }
  out += "\n";
}

} // namespace

std::string partitionText(const Partition &p) {
  std::vector<std::vector<std::string>> table{{"stage", "nodes", "replicas",
                                               "tensor", "recomputed", p.unit,
                                               "devices"}};
  for (size_t s = 0; s < p.stages.size(); ++s) {
    const PartitionStage &stage = p.stages[s];
    table.push_back(
        {std::to_string(s), std::to_string(stage.nodes.size()),
         std::to_string(stage.replicas), std::to_string(stage.tensorParallel),
         std::to_string(stage.recomputed.size()), format("%.5g", stage.load),
         (stage.kind == "gpu" ? "" : stage.kind + " ") +
             ranges(stage.devices)});
  }
  std::vector<size_t> width(table[0].size(), 0);
  for (const auto &cells : table)
    for (size_t c = 0; c < cells.size(); ++c)
      width[c] = std::max(width[c], cells[c].size());
  std::string out;
  for (const auto &cells : table)
    row(out, cells, width);
  out += "\n" + p.objectiveName + " objective  " +
         format("%.6g ", p.objective) + p.unit;
  out += p.exact
             ? "  (optimal over all " + std::to_string(p.states) + " cuts)\n"
             : "  (searched, " + std::to_string(p.states) + " cuts)\n";
  out += "bound by             " + p.binding + "\n";
  if (p.dataParallel)
    out += "data parallel        " + format("%.6g ", *p.dataParallel) + p.unit +
           format("  (%.3fx)\n",
                  p.objective > 0 ? *p.dataParallel / p.objective : 0);
  if (p.bound)
    out += "nothing is below     " + format("%.6g ", *p.bound) + p.unit +
           format("  (%+.1f %% above it)\n",
                  *p.bound > 0 ? 100 * (p.objective / *p.bound - 1) : 0);
  out +=
      "planned in           " + format("%.3f s of processor time\n", p.seconds);
  return out;
}

std::string partitionJson(const Partition &p) {
  nlohmann::ordered_json root;
  root["objective"] = p.objective;
  root["unit"] = p.unit;
  root["objective_name"] = p.objectiveName;
  root["data_parallel"] =
      p.dataParallel ? nlohmann::ordered_json(*p.dataParallel) : nullptr;
  root["lower_bound"] = p.bound ? nlohmann::ordered_json(*p.bound) : nullptr;
  root["exact"] = p.exact;
  root["bottleneck"] = p.binding;
  root["stages"] = nlohmann::ordered_json::array();
  for (const PartitionStage &stage : p.stages) {
    nlohmann::ordered_json entry{{"nodes", stage.nodes},
                                 {"replicas", stage.replicas},
                                 {"tensor_parallel", stage.tensorParallel},
                                 {"devices", stage.devices},
                                 {"device_kind", stage.kind},
                                 {"recomputed", stage.recomputed},
                                 {"load", stage.load}};
    if (!stage.leftOut.empty())
      entry["left_out"] = stage.leftOut;
    root["stages"].push_back(entry);
  }
  root["seconds"] = p.seconds;
  root["wall_seconds"] = p.wallSeconds;
  root["states"] = p.states;
  // Files whose names are not valid UTF-8 were refused when they were read.
  return root.dump(1) + "\n";
}

std::string partitionDot(const Partition &p) {
  std::map<std::string, int> stageOf;
  for (size_t s = 0; s < p.stages.size(); ++s)
    for (const auto *ids : {&p.stages[s].nodes, &p.stages[s].leftOut})
      for (const std::string &id : *ids)
        stageOf[id] = static_cast<int>(s);
  std::vector<plan::DotNode> nodes;
  for (const auto &[id, label] : p.nodes) {
    auto it = stageOf.find(id);
    nodes.push_back({id, label, it == stageOf.end() ? -1 : it->second});
  }
  return plan::dotGraph(nodes, {p.edges.begin(), p.edges.end()});
}

} // namespace pipec
