//===- Merged.cpp - tensors that an exporter made one of several ----------===//
#include "compiler/onnx/Importer.h"
#include "compiler/onnx/Values.h"

using namespace mlir;

namespace pipec::onnx {

/// "layers.0.bias" and "layers.11.bias" are alike: tensors of repeated layers.
static bool alikeButForNumbers(llvm::StringRef a, llvm::StringRef b) {
  const auto digit = [](char c) { return llvm::isDigit(c); };
  while (!a.empty() && !b.empty()) {
    if (digit(a.front()) && digit(b.front())) {
      a = a.drop_while(digit);
      b = b.drop_while(digit);
    } else if (a.consume_front(b.take_front(1))) {
      b = b.drop_front();
    } else {
      return false;
    }
  }
  return a.empty() && b.empty();
}

/// PyTorch copies a layer to make a stack of them, and TorchScript's exporter
/// makes one tensor of equal ones: the others are an Identity of it, under
/// their own names.
void Importer::findTwins() {
  std::map<std::string, const TensorData *> tensors;
  for (const TensorData &t : model.graph.initializers)
    tensors[t.name] = &t;
  for (const Node &node : model.graph.nodes) {
    if (node.op != "Identity" || !node.domain.empty() ||
        node.inputs.size() != 1 || node.outputs.size() != 1)
      continue;
    const auto source = tensors.find(node.inputs[0]);
    if (source != tensors.end() &&
        (alikeButForNumbers(node.inputs[0], node.outputs[0]) ||
         isUniform(model, *source->second)))
      twinsOf[node.inputs[0]].push_back(node.outputs[0]);
  }
}

/// The dynamo exporter makes one tensor of equal ones too. Its metadata lists
/// all parameters: one that has no tensor, but a name like that of a tensor
/// that is read once for each of them, is among those it stands for.
void Importer::findMergedParameters() {
  std::set<std::string> targets = parameterTargets(model.graph.metadata);
  for (const TensorData &t : model.graph.initializers)
    targets.erase(t.name);
  for (size_t i = 0; i < classes.size() && !targets.empty(); ++i) {
    const std::string &name = model.graph.initializers[i].name;
    if (classes[i].role != Role::Weight || classes[i].uses < 2)
      continue;
    std::vector<std::string> alike;
    for (const std::string &target : targets)
      if (alikeButForNumbers(name, target))
        alike.push_back(target);
    if (static_cast<int>(alike.size()) + 1 == classes[i].uses)
      mergedInto[name] = alike;
  }
}

bool Importer::isMerged(size_t i) const {
  const TensorData &t = model.graph.initializers[i];
  return classes[i].role == Role::Weight && classes[i].uses > 1 &&
         t.elements() > 1 && isUniform(model, t);
}

void Importer::findMerged() {
  for (size_t i = 0; options.untie && i < initializers.size(); ++i) {
    const std::string &name = initializers[i]->data->name;
    if (isMerged(i) || (classes[i].role == Role::Weight &&
                        (twinsOf.count(name) || mergedInto.count(name))))
      merged[initializers[i].get()] = false;
  }
}

/// Every place of the main graph but the first that reads a merged tensor gets
/// a weight of its own; where it stands for others by name, each of them does.
Val Importer::splitMerged(const Node &node, size_t input, const Val &v) {
  const auto found = v.value ? merged.end() : merged.find(v.source.get());
  const std::vector<Node> &nodes = model.graph.nodes;
  const bool main =
      &node >= nodes.data() && &node < nodes.data() + nodes.size();
  if (found == merged.end() || !main)
    return v;
  if (const auto twins = twinsOf.find(found->first->data->name);
      twins != twinsOf.end()) {
    if (node.op != "Identity" ||
        !llvm::is_contained(twins->second, node.outputs[0]))
      return v;
  } else if (!found->second) {
    found->second = true;
    return v;
  }
  auto own = std::make_shared<Initializer>(*v.source);
  own->used = false;
  for (int n = 1; !knownSymbols.insert(own->symbol).second; ++n)
    own->symbol = v.source->data->name + "." + std::to_string(n);
  initializers.push_back(own);
  Builder b(&context);
  splits.push_back(b.getDictionaryAttr(
      {b.getNamedAttr("name", b.getStringAttr(own->symbol)),
       b.getNamedAttr("of", b.getStringAttr(v.source->data->name)),
       b.getNamedAttr("node", b.getI64IntegerAttr(&node - nodes.data())),
       b.getNamedAttr("input", b.getI64IntegerAttr(input))}));
  return Val(own, v.type);
}

/// The dynamo exporter makes one tensor of equal ones: all unit weights of the
/// norms of a fresh model, say.
void Importer::noteMergedTensors() {
  for (size_t i = 0; i < classes.size(); ++i) {
    const std::string &name = model.graph.initializers[i].name;
    if (options.untie || classes[i].role != Role::Weight)
      continue;
    const auto twins = twinsOf.find(name), copies = mergedInto.find(name);
    if (isMerged(i)) {
      note("'" + name + "' has one value throughout and is read in " +
           std::to_string(classes[i].uses) +
           " places: the exporter merges equal tensors, so these places train "
           "as one; --untie trains them apart");
    } else if (twins != twinsOf.end() || copies != mergedInto.end()) {
      const auto &others =
          twins != twinsOf.end() ? twins->second : copies->second;
      note("'" + name + "' stands for '" + others.front() + "'" +
           (others.size() == 1
                ? std::string()
                : " and " + std::to_string(others.size() - 1) + " more") +
           " too: the exporter merges equal tensors, so they train as one; "
           "--untie trains them apart");
    }
  }
}

} // namespace pipec::onnx
