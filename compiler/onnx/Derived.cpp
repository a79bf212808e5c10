//===- Derived.cpp - what is computed from weights alone ------------------===//
#include "compiler/onnx/Derived.h"
#include "compiler/onnx/GraphChecks.h"

#include <algorithm>
#include <set>
#include <unordered_set>

namespace pipec::onnx {

/// No gradient goes through these, and nothing that trains.
static bool stopsGradients(const std::string &op) {
  static const std::set<std::string> ops = {
      "ArgMax",         "ArgMin", "Ceil",  "Equal", "Floor",   "Greater",
      "GreaterOrEqual", "IsInf",  "IsNaN", "Less",  "Not",     "LessOrEqual",
      "NonZero",        "OneHot", "Range", "Round", "Shape",   "ShapeOfData",
      "Sign",           "Size",   "Cos",   "Sin",   "EyeLike", "Bernoulli",
      "Multinomial"};
  return ops.count(op);
}

static bool drawsOrBranches(const Node &node) {
  return node.op.find("Random") != std::string::npos ||
         node.op == "Bernoulli" ||
         std::any_of(node.attributes.begin(), node.attributes.end(),
                     [](const Attribute &a) { return a.graph != nullptr; });
}

static bool bends(const std::string &op) {
  static const std::set<std::string> ops = {"Exp",     "Relu", "Sigmoid",
                                            "Softmax", "Tanh", "Softplus"};
  return ops.count(op);
}

Derived::Derived(const Model &model, const Uses &uses) : uses(uses) {
  for (const TensorData &t : model.graph.initializers)
    origins[t.name] = {isFloating(t.type) && t.elements() > 1 ? t.name : "",
                       false};
  for (const size_t i : topologicalOrder(model.graph.nodes)) {
    const Node &node = model.graph.nodes[i];
    Origin joint;
    bool known = !drawsOrBranches(node);
    for (const std::string &input : node.inputs) {
      if (input.empty())
        continue;
      const auto found = origins.find(input);
      known = known && found != origins.end();
      if (!known)
        break;
      const Origin &origin = found->second;
      joint.several =
          joint.several || origin.several ||
          (!joint.initializer.empty() && !origin.initializer.empty() &&
           joint.initializer != origin.initializer);
      if (joint.initializer.empty())
        joint.initializer = origin.initializer;
    }
    if (known)
      for (const std::string &output : node.outputs)
        if (!output.empty())
          origins.try_emplace(output, joint);
  }
}

std::vector<DerivedUse> Derived::usesOf(const std::string &initializer) const {
  struct Step {
    std::string name;
    bool bent;
  };
  std::vector<DerivedUse> found;
  std::vector<Step> work{{initializer, false}};
  std::unordered_set<std::string> seen{initializer};
  while (!work.empty()) {
    const Step at = work.back();
    work.pop_back();
    for (const Use &use : uses.of(at.name)) {
      const Node &node = *use.node;
      const bool limit = node.op == "Clip" && use.operand > 0;
      if (stopsGradients(node.op) || limit || node.outputs.empty())
        continue;
      if (!origins.count(node.outputs[0])) {
        if (at.name != initializer)
          found.push_back({use, at.bent, origins.at(at.name).several});
        continue;
      }
      for (const std::string &output : node.outputs)
        if (!output.empty() && seen.insert(output).second)
          work.push_back({output, at.bent || bends(node.op)});
    }
  }
  return found;
}

} // namespace pipec::onnx
