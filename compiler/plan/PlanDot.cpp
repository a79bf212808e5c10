#include "compiler/plan/PlanDot.h"
#include "support/Printable.h"

#include <cmath>
#include <cstdio>

namespace pipec::plan {

namespace {

std::string escape(const std::string &text) {
  std::string out;
  for (char c : printable(text)) {
    if (c == '"' || c == '\\')
      out += '\\';
    out += c;
  }
  return out;
}

/// Evenly spaced, light hues: neighbouring stages differ most.
std::string colorOf(int stage) {
  double hue = 0.61803398875 * static_cast<double>(stage);
  char text[48];
  std::snprintf(text, sizeof text, "%.3f 0.35 0.95", hue - std::floor(hue));
  return text;
}

} // namespace

std::string
dotGraph(const std::vector<DotNode> &nodes,
         const std::vector<std::pair<std::string, std::string>> &edges) {
  std::string out =
      "digraph partition {\n  node [shape=box, style=filled, fontsize=10];\n";
  for (const DotNode &node : nodes) {
    std::string text =
        node.label.empty() || node.label == node.id
            ? escape(node.id)
            : escape(node.id) + "\\n" + escape(node.label.substr(0, 40));
    out += "  \"" + escape(node.id) + "\" [label=\"" + text + "\"";
    if (node.stage >= 0)
      out += ", fillcolor=\"" + colorOf(node.stage) + "\", tooltip=\"stage " +
             std::to_string(node.stage) + "\"";
    out += "];\n";
  }
  for (const auto &[from, to] : edges)
    out += "  \"" + escape(from) + "\" -> \"" + escape(to) + "\";\n";
  return out + "}\n";
}

std::string planDot(const CostGraph &graph, const PlanResult &plan) {
  std::vector<DotNode> nodes;
  for (size_t s = 0; s < plan.stages.size(); ++s)
    for (size_t i = plan.stages[s].firstNode; i <= plan.stages[s].lastNode; ++i)
      nodes.push_back(
          {graph.nodes[i].id, graph.nodes[i].name, static_cast<int>(s)});
  std::vector<std::pair<std::string, std::string>> edges;
  for (const CostValue &value : graph.values)
    for (size_t reader : value.consumers)
      edges.push_back({graph.nodes[value.producer].id, graph.nodes[reader].id});
  return dotGraph(nodes, edges);
}

} // namespace pipec::plan
