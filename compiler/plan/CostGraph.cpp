#include "compiler/plan/CostGraph.h"

#include "support/Failure.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace pipec::plan {

namespace {

[[noreturn]] void bad(const std::string &message) {
  throw Failure(Exit::BadModel, "cost graph: " + message);
}

void checkNode(const CostNode &node, size_t index) {
  auto where = [&] {
    return "node " + std::to_string(index) + " '" + node.id + "'";
  };
  for (double seconds : {node.forwardSeconds, node.backwardInputSeconds,
                         node.backwardWeightSeconds, node.flops})
    if (!std::isfinite(seconds) || seconds < 0)
      bad(where() + " has a cost that is negative or not a number");
  for (int64_t bytes : {node.parameterBytes, node.stateBytes, node.stashBytes,
                        node.workspaceBytes})
    if (bytes < 0)
      bad(where() + " has a negative size");
}

void checkUsers(const std::vector<size_t> &users, size_t nodes,
                const std::string &what) {
  for (size_t user : users)
    if (user >= nodes)
      bad(what + " names node " + std::to_string(user) + " of " +
          std::to_string(nodes));
}

} // namespace

void checkCostGraph(const CostGraph &graph) {
  size_t n = graph.nodes.size();
  if (n == 0)
    bad("it has no nodes");
  std::unordered_set<std::string> ids;
  for (size_t i = 0; i < n; ++i) {
    checkNode(graph.nodes[i], i);
    if (!graph.nodes[i].id.empty() && !ids.insert(graph.nodes[i].id).second)
      bad("node id '" + graph.nodes[i].id + "' appears twice");
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const CostValue &value = graph.values[v];
    std::string what = "value " + std::to_string(v);
    checkUsers({value.producer}, n, what);
    checkUsers(value.consumers, n, what);
    if (value.bytes < 0 || value.gradientBytes < 0)
      bad(what + " has a negative size");
    for (size_t consumer : value.consumers)
      if (consumer <= value.producer)
        bad(what + " of node '" + graph.nodes[value.producer].id +
            "' is consumed by '" + graph.nodes[consumer].id +
            "', which does not come after it");
  }
  for (const CostWeight &weight : graph.weights) {
    checkUsers(weight.users, n, "weight '" + weight.name + "'");
    if (weight.bytes < 0)
      bad("weight '" + weight.name + "' has a negative size");
  }
  for (const CostCopy &copy : graph.rounded) {
    if (copy.weight >= graph.weights.size())
      bad("a rounded copy is of weight " + std::to_string(copy.weight) +
          " of " + std::to_string(graph.weights.size()));
    const std::string what =
        "the copy of weight '" + graph.weights[copy.weight].name + "'";
    checkUsers(copy.users, n, what);
    if (copy.bytes < 0)
      bad(what + " has a negative size");
  }
  const auto checkKept = [&](const std::vector<CostStash> &kept,
                             const std::string &kind) {
    for (size_t s = 0; s < kept.size(); ++s) {
      checkUsers(kept[s].users, n, kind + std::to_string(s));
      if (kept[s].bytes < 0)
        bad(kind + std::to_string(s) + " has a negative size");
    }
  };
  checkKept(graph.stashes, "stash ");
  checkKept(graph.inputs, "input ");
  checkKept(graph.repeats, "repeat ");
  const auto checkPair = [&](const auto &pair, const std::string &what) {
    checkUsers({pair.first, pair.last}, n, what);
    if (pair.first > pair.last || pair.bytes < 0)
      bad(what + " goes backwards, or has a negative size");
  };
  for (const CostHandover &handover : graph.handovers)
    checkPair(handover, "a handover");
  for (const CostHandover &use : graph.furtherUses)
    checkPair(use, "a further use");
  for (const CostScratch &scratch : graph.scratch)
    checkPair(scratch, "scratch");
  for (const auto &group : graph.pinTogether)
    checkUsers(group, n, "a pinned group");
}

std::vector<size_t> legalStarts(const CostGraph &graph) {
  size_t n = graph.nodes.size();
  // closed[i] > 0: some group has a node before i and one at or after i.
  std::vector<int> step(n + 1, 0);
  for (const auto &group : graph.pinTogether) {
    if (group.empty())
      continue;
    auto [low, high] = std::minmax_element(group.begin(), group.end());
    ++step[*low + 1];
    --step[*high + 1];
  }
  std::vector<size_t> starts;
  int closed = 0;
  for (size_t i = 0; i < n; ++i) {
    closed += step[i];
    if (i == 0 || closed == 0)
      starts.push_back(i);
  }
  return starts;
}

} // namespace pipec::plan
