//===- Dropped.cpp - biases that an exporter left out ---------------------===//
#include "compiler/onnx/Dropped.h"
#include "compiler/onnx/Trainable.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

namespace pipec::onnx {

/// The module that a node computes for: the last but one of the exporter's
/// scopes ['', 'model', 'model.fc', 'linear'], whose last is the node. Empty
/// when it does not say.
static std::string moduleOf(const Node &node) {
  const std::string *scopes =
      lookup(node.metadata, "pkg.torch.onnx.name_scopes");
  if (!scopes)
    return "";
  const std::vector<std::string> names = quotedNames(*scopes);
  return names.size() < 2 ? "" : names[names.size() - 2];
}

static llvm::StringRef lastPart(llvm::StringRef name) {
  return name.rsplit('.').second.empty() ? name : name.rsplit('.').second;
}

/// What a module reads under a name that is another module's was one of its own
/// before the exporter merged equal tensors, or tied by the model.
static void eraseBorrowed(const Model &model, std::set<std::string> &missing) {
  std::set<std::string> tensors;
  for (const TensorData &t : model.graph.initializers)
    tensors.insert(t.name);
  for (const Node &node : model.graph.nodes) {
    const std::string module = moduleOf(node);
    if (module.empty())
      continue;
    for (const std::string &input : node.inputs)
      if (tensors.count(input) &&
          !llvm::StringRef(input).starts_with(module + "."))
        missing.erase(module + "." + lastPart(input).str());
  }
}

std::vector<std::string> droppedBiases(
    const Model &model,
    const std::map<std::string, std::vector<std::string>> &standsFor) {
  std::set<std::string> missing = parameterTargets(model.graph.metadata);
  // Of other names are tied weights, and what the model does not use.
  std::erase_if(missing, [](const std::string &name) {
    return !lastPart(name).contains("bias");
  });
  for (const TensorData &t : model.graph.initializers)
    missing.erase(t.name);
  for (const ValueInfo &info : model.graph.valueInfo)
    if (const std::string *folded = lookup(info.metadata, kFoldedFrom))
      for (const std::string &name : quotedNames(*folded))
        missing.erase(name);
  for (const auto &[name, others] : standsFor)
    for (const std::string &other : others)
      missing.erase(other);
  // Folded batch norms have a note of their own.
  for (const std::string &name : bufferTargets(model.graph.metadata))
    if (lastPart(name) == "running_mean")
      missing.erase(name.substr(0, name.rfind('.') + 1) + "bias");
  eraseBorrowed(model, missing);
  return {missing.begin(), missing.end()};
}

} // namespace pipec::onnx
