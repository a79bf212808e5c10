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

namespace {
/// A body's name of what a loop hands to it.
struct Handed {
  const Graph *body = nullptr;
  std::string name;
};
} // namespace

/// What input `operand` of a loop is in every iteration; no body for other
/// nodes, and for a state, which changes.
static Handed loopInvariant(const Node &node, int operand) {
  const bool isLoop = node.op == "Loop", isScan = node.op == "Scan";
  if ((!isLoop && !isScan) || !node.domain.empty())
    return {};
  const Graph *body = nullptr;
  int64_t sliced = 0;
  for (const Attribute &a : node.attributes) {
    body = a.graph ? a.graph.get() : body;
    if (a.name == "num_scan_inputs") // whatever a file says
      sliced = std::clamp<int64_t>(a.i, 0, std::ssize(node.inputs));
  }
  if (!body || operand >= static_cast<int>(body->inputs.size()))
    return {};
  const std::string &name = body->inputs[operand].name;
  if (isScan && operand >= static_cast<int>(node.inputs.size()) - sliced)
    return {body, name}; // its slices
  // Outputs of a Loop's body lack the number of the iteration.
  const int output = isLoop ? operand - 1 : operand;
  if (output < 0 || output >= static_cast<int>(body->outputs.size()))
    return {};
  std::string made = body->outputs[output].name;
  for (auto copy = body->nodes.rbegin(); copy != body->nodes.rend(); ++copy)
    if (copy->op == "Identity" && !copy->inputs.empty() &&
        !copy->outputs.empty() && copy->outputs[0] == made)
      made = copy->inputs[0];
  return made == name ? Handed{body, name} : Handed{};
}

void Uses::collect(const std::vector<Node> &nodes, Table &into, int depth) {
  for (const Node &node : nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (!node.inputs[i].empty())
        follow(node, static_cast<int>(i), into, depth);
    for (const Attribute &a : node.attributes)
      if (a.graph)
        collect(a.graph->nodes, into, depth);
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

/// Of a body alone: bodies of other loops may use the same names.
const Uses::Table &Uses::tableOf(const Graph &body, int depth) {
  auto [entry, isNew] = bodyTables.try_emplace(&body);
  if (isNew) {
    Table inner;
    collect(body.nodes, inner, depth);
    // The map may have grown meanwhile.
    bodyTables[&body] = std::move(inner);
  }
  return bodyTables[&body];
}

void Uses::follow(const Node &node, int operand, Table &into, int depth) {
  std::vector<Use> &out = into[node.inputs[operand]];
  if (const Handed handed = loopInvariant(node, operand); handed.body) {
    const Table &inner = tableOf(*handed.body, depth);
    if (const auto uses = inner.find(handed.name); uses != inner.end()) {
      out.insert(out.end(), uses->second.begin(), uses->second.end());
      return;
    }
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
