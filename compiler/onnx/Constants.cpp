//===- Constants.cpp - weights that stand in Constant nodes ---------------===//
#include "compiler/onnx/Constants.h"

#include <algorithm>

namespace pipec::onnx {

/// The floating-point tensor of a Constant node that could be a weight, or
/// null.
static const TensorData *weightOf(const Node &node) {
  if (node.op != "Constant" || !node.domain.empty() ||
      node.outputs.size() != 1 || node.attributes.size() != 1)
    return nullptr;
  const TensorData *t = node.attributes[0].tensor.get();
  return t && isFloating(t->type) && t->elements() > 1 ? t : nullptr;
}

void liftConstants(Model &model) {
  Graph &graph = model.graph;
  const bool hasWeights =
      std::any_of(graph.initializers.begin(), graph.initializers.end(),
                  [](const TensorData &t) {
                    return isFloating(t.type) && !t.dims.empty();
                  });
  const bool hasMatrices =
      std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node &n) {
        const TensorData *t = weightOf(n);
        return t && t->dims.size() >= 2;
      });
  if (hasWeights || !hasMatrices)
    return;
  for (Node &node : graph.nodes)
    if (const TensorData *t = weightOf(node)) {
      graph.initializers.push_back(*t);
      graph.initializers.back().name = node.outputs[0];
      // The node stays, so that nodes keep their numbers.
      node.outputs[0].clear();
    }
}

} // namespace pipec::onnx
