//===- Uses.cpp - who reads a value ---------------------------------------===//
#include "compiler/onnx/Uses.h"

#include <algorithm>

namespace pipec::onnx {

/// Functions that call functions deeper than this are not looked into.
static constexpr int kDeepestCall = 16;

static const Function *calledFunction(const Model &model, const Node &node) {
  for (const Function &f : model.functions)
    if (f.name == node.op && f.domain == node.domain &&
        f.overload == node.overload)
      return &f;
  return nullptr;
}

Uses::Uses(const Model &model) : model(model) {
  for (const Node &node : model.graph.nodes)
    for (const std::string &output : node.outputs)
      producers.emplace(output, &node);
  collect(model.graph.nodes, table, 0);
}

/// What a loop hands to its body in input `operand` in every iteration, by the
/// body's name of it; empty for other nodes, and for a state, which changes.
static std::string loopInvariant(const Node &node, int operand) {
  const bool isLoop = node.op == "Loop", isScan = node.op == "Scan";
  if ((!isLoop && !isScan) || !node.domain.empty())
    return "";
  const Graph *body = nullptr;
  int64_t sliced = 0;
  for (const Attribute &a : node.attributes) {
    body = a.graph ? a.graph.get() : body;
    sliced = a.name == "num_scan_inputs" ? a.i : sliced;
  }
  if (!body || operand >= static_cast<int>(body->inputs.size()))
    return "";
  const std::string &name = body->inputs[operand].name;
  if (isScan && operand >= static_cast<int>(node.inputs.size()) - sliced)
    return name; // its slices
  // Outputs of a Loop's body lack the number of the iteration.
  const int output = isLoop ? operand - 1 : operand;
  if (output < 0 || output >= static_cast<int>(body->outputs.size()))
    return "";
  std::string made = body->outputs[output].name;
  for (auto node = body->nodes.rbegin(); node != body->nodes.rend(); ++node)
    if (node->op == "Identity" && node->outputs[0] == made)
      made = node->inputs[0];
  return made == name ? name : "";
}

void Uses::collect(const std::vector<Node> &nodes, Table &into, int depth) {
  for (const Node &node : nodes) {
    for (const Attribute &a : node.attributes)
      if (a.graph)
        collect(a.graph->nodes, into, depth);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (!node.inputs[i].empty())
        follow(node, static_cast<int>(i), into, depth);
  }
}

const Uses::Table &Uses::tableOf(const Function &function, int depth) {
  auto [entry, isNew] = functionTables.try_emplace(&function);
  if (isNew) {
    Table inner;
    collect(function.nodes, inner, depth + 1);
    // The map may have grown meanwhile.
    functionTables[&function] = std::move(inner);
  }
  return functionTables[&function];
}

void Uses::follow(const Node &node, int operand, Table &into, int depth) {
  std::vector<Use> &out = into[node.inputs[operand]];
  if (const std::string inside = loopInvariant(node, operand); !inside.empty())
    if (const auto inner = into.find(inside);
        inner != into.end() && &inner->second != &out) {
      out.insert(out.end(), inner->second.begin(), inner->second.end());
      return;
    }
  const Function *function =
      depth < kDeepestCall ? calledFunction(model, node) : nullptr;
  if (!function) {
    out.push_back({&node, operand});
    return;
  }
  if (operand >= static_cast<int>(function->inputs.size()))
    return;
  const Table &inner = tableOf(*function, depth);
  if (auto uses = inner.find(function->inputs[operand]); uses != inner.end())
    out.insert(out.end(), uses->second.begin(), uses->second.end());
}

const std::vector<Use> &Uses::of(const std::string &name) const {
  static const std::vector<Use> none;
  const auto found = table.find(name);
  return found == table.end() ? none : found->second;
}

const Node *Uses::producer(const std::string &name) const {
  const auto found = producers.find(name);
  return found == producers.end() ? nullptr : found->second;
}

} // namespace pipec::onnx
