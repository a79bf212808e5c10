//===- GraphChecks.cpp - is the graph a graph -----------------------------===//
#include "compiler/onnx/GraphChecks.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

namespace pipec::onnx {

/// Names a node reads: its inputs and what its subgraphs take from outside.
static std::vector<std::string> reads(const Node &node) {
  std::vector<std::string> names;
  for (const std::string &input : node.inputs)
    if (!input.empty())
      names.push_back(input);
  for (const Attribute &a : node.attributes)
    if (a.graph)
      for (const std::string &name : freeNames(*a.graph))
        names.push_back(name);
  return names;
}

std::set<std::string> freeNames(const Graph &graph) {
  std::unordered_set<std::string> defined;
  for (const ValueInfo &input : graph.inputs)
    defined.insert(input.name);
  for (const TensorData &t : graph.initializers)
    defined.insert(t.name);
  for (const Node &node : graph.nodes)
    defined.insert(node.outputs.begin(), node.outputs.end());
  std::set<std::string> free;
  for (const Node &node : graph.nodes)
    for (const std::string &name : reads(node))
      if (!defined.count(name))
        free.insert(name);
  for (const ValueInfo &output : graph.outputs)
    if (!defined.count(output.name))
      free.insert(output.name);
  return free;
}

namespace {

/// For each node, the nodes that must come before it.
struct Dependencies {
  std::vector<std::vector<size_t>> users;
  std::vector<size_t> missing; ///< how many producers are still to come

  explicit Dependencies(const std::vector<Node> &nodes)
      : users(nodes.size()), missing(nodes.size(), 0) {
    std::unordered_map<std::string, size_t> producer;
    for (size_t i = 0; i < nodes.size(); ++i)
      for (const std::string &output : nodes[i].outputs)
        if (!output.empty())
          producer.emplace(output, i);
    for (size_t i = 0; i < nodes.size(); ++i)
      for (const std::string &name : reads(nodes[i]))
        if (auto p = producer.find(name); p != producer.end()) {
          users[p->second].push_back(i);
          ++missing[i];
        }
  }
};

} // namespace

std::vector<size_t> topologicalOrder(const std::vector<Node> &nodes) {
  Dependencies d(nodes);
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (d.missing[i] == 0)
      ready.push(i);
  std::vector<size_t> order;
  while (!ready.empty()) {
    const size_t i = ready.top();
    ready.pop();
    order.push_back(i);
    for (const size_t user : d.users[i])
      if (--d.missing[user] == 0)
        ready.push(user);
  }
  return order;
}

namespace {

class Checker {
public:
  explicit Checker(Diagnostics &diagnostics) : diagnostics(diagnostics) {}

  bool check(const Graph &graph,
             const std::unordered_set<std::string> &outside) {
    std::unordered_set<std::string> defined = outside;
    defineNames(graph, defined);
    for (const Node &node : graph.nodes)
      checkNode(node, defined);
    for (const ValueInfo &output : graph.outputs)
      if (!defined.count(output.name))
        problem("output '" + output.name + "' is made by no node");
    for (const std::string &name : graph.sparseInitializers)
      problem("sparse initializer '" + name + "' is not supported",
              "export the model with dense weights");
    if (ok && topologicalOrder(graph.nodes).size() != graph.nodes.size())
      problem("the graph has a cycle through node '" + cycleNode(graph) + "'");
    return ok;
  }

private:
  void defineNames(const Graph &graph,
                   std::unordered_set<std::string> &defined) {
    std::unordered_set<std::string> here, initializers;
    for (const TensorData &t : graph.initializers)
      if (!initializers.insert(t.name).second)
        problem("two initializers have the name '" + t.name + "'");
      else if (t.name.empty())
        problem("an initializer has no name");
    for (const ValueInfo &input : graph.inputs)
      if (!here.insert(input.name).second)
        problem("two inputs have the name '" + input.name + "'");
      else if (input.name.empty())
        problem("an input has no name");
    here.insert(initializers.begin(), initializers.end());
    for (const Node &node : graph.nodes)
      for (const std::string &output : node.outputs)
        if (!output.empty() && !here.insert(output).second)
          problem("the name '" + output + "' is defined twice", kRemedy, &node);
    std::unordered_set<std::string> outputs;
    for (const ValueInfo &output : graph.outputs)
      if (!outputs.insert(output.name).second)
        problem("two outputs have the name '" + output.name + "'");
    defined.insert(here.begin(), here.end());
  }

  void checkNode(const Node &node,
                 const std::unordered_set<std::string> &defined) {
    if (node.op.empty())
      problem("the node has no operator", kRemedy, &node);
    for (const std::string &input : node.inputs)
      if (!input.empty() && !defined.count(input))
        problem("its input '" + input +
                    "' is no graph input, initializer or output of a node",
                kRemedy, &node);
    for (const Attribute &a : node.attributes)
      if (a.graph)
        check(*a.graph, defined);
  }

  /// The first node, in the order of the file, that lies on a cycle or behind
  /// one.
  static std::string cycleNode(const Graph &graph) {
    const std::vector<size_t> order = topologicalOrder(graph.nodes);
    std::vector<bool> done(graph.nodes.size(), false);
    for (const size_t i : order)
      done[i] = true;
    const auto at = std::find(done.begin(), done.end(), false) - done.begin();
    return graph.nodes[at].name;
  }

  void problem(const std::string &cause, const std::string &remedy = kRemedy,
               const Node *node = nullptr) {
    ok = false;
    Diagnostic d;
    d.cause = cause;
    d.remedy = remedy;
    if (node) {
      d.node = node->name;
      d.op = node->op;
      d.domain = node->domain;
    }
    diagnostics.add(std::move(d));
  }

  static inline const std::string kRemedy =
      "the file is malformed; export the model again";
  Diagnostics &diagnostics;
  bool ok = true;
};

} // namespace

bool checkGraph(const Model &model, Diagnostics &diagnostics) {
  if (model.graph.outputs.empty()) {
    diagnostics.add(Exit::BadModel, "the model has no output",
                    "name what it computes as an output of its graph");
    return false;
  }
  return Checker(diagnostics).check(model.graph, {});
}

} // namespace pipec::onnx
