//===- Trainable.cpp - which initializers are weights ---------------------===//
#include "compiler/onnx/Trainable.h"
#include "compiler/onnx/Derived.h"
#include "compiler/onnx/Generated.h"
#include "compiler/onnx/Patterns.h"
#include "compiler/onnx/Values.h"

#include <algorithm>
#include <set>
#include <unordered_set>

namespace pipec::onnx {

static constexpr const char *kKind =
    "pkg.torch.export.graph_signature.InputSpec.kind";
static constexpr const char *kSignature =
    "pkg.torch.export.ExportedProgram.graph_signature";

//===----------------------------------------------------------------------===//
// What the exporter says
//===----------------------------------------------------------------------===//

/// The targets of lines such as: p_fc_weight: PARAMETER target='fc.weight'
static std::set<std::string> targetsOf(const Metadata &metadata,
                                       const std::string &kind) {
  std::set<std::string> targets;
  const std::string *signature = lookup(metadata, kSignature);
  if (!signature)
    return targets;
  const std::string mark = kind + " target='";
  for (size_t at = 0; (at = signature->find(mark, at)) != std::string::npos;) {
    at += mark.size();
    const size_t end = signature->find('\'', at);
    if (end == std::string::npos)
      break;
    // "BUFFER_PARAMETER" does not exist; what stands before is the kind's
    // start.
    targets.insert(signature->substr(at, end - at));
  }
  return targets;
}

std::set<std::string> parameterTargets(const Metadata &metadata) {
  return targetsOf(metadata, "PARAMETER");
}

std::set<std::string> bufferTargets(const Metadata &metadata) {
  return targetsOf(metadata, "BUFFER");
}

std::vector<std::string> quotedNames(const std::string &text) {
  std::vector<std::string> names;
  for (size_t at = 0;
       (at = text.find_first_of("'\"", at)) != std::string::npos;) {
    const size_t end = text.find(text[at], at + 1);
    if (end == std::string::npos)
      break;
    names.push_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  if (names.empty())
    names.push_back(text);
  return names;
}

/// Whether the exporter computed with numbers to make a value, by the operator
/// that the dynamo exporter named it after ("exp", "mul_12") and by what it was
/// made from; a parameter that was only moved or reshaped trains as it is.
static bool wasComputed(llvm::StringRef value, size_t sources) {
  const llvm::StringRef op =
      value.rtrim("0123456789").rtrim('_'); // "unsqueeze_1"
  static const std::set<llvm::StringRef> moves = {
      "t",       "transpose", "permute", "view",     "reshape", "unsqueeze",
      "squeeze", "expand",    "slice",   "_to_copy", "clone",   "select"};
  return !moves.count(op) && (sources > 1 || op != "val");
}

static std::optional<Classification>
byMetadata(const std::string &value, const Metadata &metadata,
           const std::set<std::string> &targets) {
  if (const std::string *kind = lookup(metadata, kKind)) {
    const bool trains = kind->find("PARAMETER") != std::string::npos;
    return Classification{trains ? Role::Weight : Role::Buffer,
                          "the exporter calls it " + *kind};
  }
  const std::string *folded = lookup(metadata, kFoldedFrom);
  if (!folded)
    return std::nullopt;
  const std::vector<std::string> sources = quotedNames(*folded);
  for (const std::string &name : sources)
    if (targets.count(name)) {
      Classification c{Role::Weight,
                       "the exporter folded it from the parameter " + name};
      if (wasComputed(value, sources.size()))
        c.computedFrom = name;
      return c;
    }
  return Classification{Role::Buffer,
                        "the exporter folded it from no parameter"};
}

//===----------------------------------------------------------------------===//
// What the structure says
//===----------------------------------------------------------------------===//

static size_t nonUnitDims(const TensorData &t) {
  return std::count_if(t.dims.begin(), t.dims.end(),
                       [](int64_t d) { return d != 1; });
}

/// Zeros that translators of transformers add to their logits: a buffer, used
/// as a bias is. TorchScript's exporter may fold it into a tensor of [1, words]
/// with a name of its own; a bias has one dimension and keeps its name.
static bool isLogitsBuffer(const Model &model, const TensorData &t) {
  const llvm::StringRef name = t.name;
  return name.ends_with("final_logits_bias") ||
         (name.starts_with("onnx::Add_") && t.dims.size() == 2 &&
          t.dims[0] == 1 && isUniform(model, t));
}

/// A depthwise convolution with the same filter for every channel blurs; no
/// training makes such weights.
static bool isFixedFilter(const Model &model, const TensorData &t,
                          const Uses &uses) {
  if (t.dims.size() < 3 || t.dims[1] != 1 || isUniform(model, t))
    return false;
  const std::vector<Use> &all = uses.of(t.name);
  return repeatsItself(model, t) &&
         std::all_of(all.begin(), all.end(), [](const Use &use) {
           return use.node->op == "Conv" || use.node->op == "ConvTranspose";
         });
}

/// Whether a path of data movement and scaling leads from `name` to Cos or Sin:
/// then it is a frequency table.
static bool reachesRotary(const Uses &uses, const std::string &name) {
  static const std::set<std::string> passes = {
      "Mul",     "MatMul",    "Concat", "Expand", "Unsqueeze", "Squeeze",
      "Reshape", "Transpose", "Cast",   "Slice",  "Gather"};
  std::vector<std::string> work{name};
  std::unordered_set<std::string> seen{name};
  while (!work.empty()) {
    const std::string at = work.back();
    work.pop_back();
    for (const Use &use : uses.of(at)) {
      if (use.node->op == "Cos" || use.node->op == "Sin")
        return true;
      if (passes.count(use.node->op))
        for (const std::string &output : use.node->outputs)
          if (seen.insert(output).second)
            work.push_back(output);
    }
  }
  return false;
}

/// Whether a value is the root of a sum or a mean: a norm or a deviation, not
/// the root of a size that attention divides its scores by.
static bool isRootOfSum(const Uses &uses, const std::string &name) {
  static const std::set<std::string> sums = {"ReduceMean", "ReduceSum",
                                             "ReduceSumSquare"};
  static const std::set<std::string> passes = {
      "Add",      "Cast",      "Clip", "Div",     "Expand",
      "Identity", "Max",       "Mul",  "Reshape", "Squeeze",
      "Sub",      "Transpose", "Relu", "Abs",     "Unsqueeze"};
  const Node *root = uses.producer(name);
  if (!root || root->op != "Sqrt")
    return false;
  std::vector<std::string> work = root->inputs;
  std::unordered_set<std::string> seen(work.begin(), work.end());
  while (!work.empty()) {
    const Node *at = uses.producer(work.back());
    work.pop_back();
    if (at && sums.count(at->op))
      return true;
    if (at && passes.count(at->op))
      for (const std::string &input : at->inputs)
        if (seen.insert(input).second)
          work.push_back(input);
  }
  return false;
}

/// Whether the node multiplies the tensor with what was divided by a norm: a
/// normalization written out, whose factors may have several dimensions. They
/// are all equal before any training; a table of cosines starts with ones, and
/// a mask is of zeros and ones.
static bool scalesNormalized(const Model &model, const TensorData &t,
                             const Use &use, const Uses &uses) {
  if (use.node->op != "Mul" || use.node->inputs.size() != 2)
    return false;
  const Node *by = uses.producer(use.node->inputs[1 - use.operand]);
  if (!by || by->inputs.empty() || (by->op != "Reciprocal" && by->op != "Div"))
    return false;
  return isRootOfSum(uses, by->inputs.back()) &&
         (isUniform(model, t) ||
          (firstRowVaries(model, t) && !isZeroOne(model, t)));
}

/// Whether this use is one that only a weight has.
static bool isWeightUse(const Model &model, const TensorData &t, const Use &use,
                        const Uses &uses) {
  const std::string &op = use.node->op;
  const int i = use.operand;
  const auto is = [&](std::initializer_list<const char *> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char *n) { return op == n; });
  };
  if (is({"MatMul", "Gemm", "FusedMatMul"}))
    return i > 0 ||
           !fewValues(model, t); // a table of coordinates times weights
  if (is({"Conv", "ConvTranspose", "LayerNormalization", "BatchNormalization",
          "GroupNormalization", "DeformConv"}))
    return i == 1 || i == 2;
  if (is({"RMSNormalization", "SimplifiedLayerNormalization", "PRelu"}))
    return i == 1;
  if (is({"LSTM", "GRU", "RNN"}))
    return i >= 1 && i <= 3;
  if (op == "Gather")
    return i == 0;
  if (op == "Einsum")
    return true;
  const size_t wide = nonUnitDims(t);
  if (is({"Add", "Mul", "Sub", "Div", "Sum"}) && wide <= 1)
    return t.elements() <= 2 || !isZeroOne(model, t);
  if (op == "Mul" || op == "Sub")
    return looksDrawn(model, t) || scalesNormalized(model, t, use, uses);
  if (op == "Add" || op == "Sum")
    return t.elements() <= 2 || distinctValues(model, t) > 2;
  if (op == "InstanceNormalization")
    return (i == 1 || i == 2) && distinctValues(model, t) > 1;
  if (is({"Expand", "Concat", "Reshape", "Flatten", "Transpose"}))
    return (i == 0 || op == "Concat") && distinctValues(model, t) > 2;
  return false;
}

/// Whether a node hands on its first operand, or a part of it.
static bool isCopy(const Use &use) {
  static const std::set<std::string> ops = {"Identity", "Cast",    "Slice",
                                            "Split",    "Squeeze", "Unsqueeze"};
  return use.operand == 0 && ops.count(use.node->op);
}

/// The uses of a value, of its copies and of its parts.
static std::vector<Use> usesThroughCopies(const Uses &uses,
                                          const std::string &name) {
  std::vector<Use> out;
  std::vector<std::string> work{name};
  std::unordered_set<std::string> seen{name};
  while (!work.empty()) {
    const std::string at = work.back();
    work.pop_back();
    for (const Use &use : uses.of(at)) {
      if (!isCopy(use)) {
        out.push_back(use);
        continue;
      }
      for (const std::string &part : use.node->outputs)
        if (!part.empty() && seen.insert(part).second)
          work.push_back(part);
    }
  }
  return out;
}

/// A node that what a weight is computed to enters as a weight does.
static bool takesWeights(const Use &use) {
  static const std::set<std::string> ops = {
      "Add",  "Conv",   "ConvTranspose", "Div", "Einsum", "Expand", "Gather",
      "Gemm", "MatMul", "Mul",           "Sub", "Sum",    "Concat"};
  return ops.count(use.node->op);
}

/// Whether weights are computed from the tensor: it is bent, or joined with
/// others, or copied in a way that leaves its shape open, and then used as a
/// weight.
static const Use *derivedWeightUse(const Model &model, const TensorData &t,
                                   const std::vector<DerivedUse> &uses,
                                   const Uses &all) {
  for (const DerivedUse &derived : uses)
    if ((derived.bent && takesWeights(derived.use)) ||
        (derived.joined && takesWeights(derived.use) &&
         distinctValues(model, t) > 2) ||
        (nonUnitDims(t) <= 1 && t.elements() > 1 &&
         isWeightUse(model, t, derived.use, all)))
      return &derived.use;
  return nullptr;
}

static Classification byStructure(const Model &model, const TensorData &t,
                                  const Uses &uses, const Derived &derived) {
  if (t.dims.empty()) {
    for (const DerivedUse &use : derived.usesOf(t.name))
      if (use.bent)
        return {Role::Weight, "the logarithm of a scale"};
    return {Role::Buffer, "a scalar"};
  }
  if (reachesRotary(uses, t.name))
    return {Role::Buffer, "a frequency table of Cos or Sin"};
  if (llvm::StringRef(t.name).ends_with("running_mean") ||
      llvm::StringRef(t.name).ends_with("running_var"))
    return {Role::Buffer, "a statistic by its name"};
  if (isFixedFilter(model, t, uses))
    return {Role::Buffer, "the same filter for every channel"};
  if (isLiteralByName(model, t))
    return {Role::Buffer, "a constant of the model's code by its name"};
  if (isLogitsBuffer(model, t))
    return {Role::Buffer, "added to the logits by a translator"};
  for (const Use &use : usesThroughCopies(uses, t.name))
    if (isWeightUse(model, t, use, uses))
      return {Role::Weight,
              "operand " + std::to_string(use.operand) + " of " + use.node->op};
  const std::vector<DerivedUse> later = derived.usesOf(t.name);
  if (const Use *use = derivedWeightUse(model, t, later, uses))
    return {Role::Weight, "operand " + std::to_string(use->operand) + " of " +
                              use->node->op + " is computed from it"};
  return {Role::Buffer, "used as no weight is"};
}

//===----------------------------------------------------------------------===//
// Everything together
//===----------------------------------------------------------------------===//

/// Initializers that are running statistics of a batch norm.
static std::unordered_set<std::string> runningStatistics(const Uses &uses,
                                                         const Model &model) {
  std::unordered_set<std::string> names;
  for (const TensorData &t : model.graph.initializers)
    for (const Use &use : uses.of(t.name))
      if (use.node->op == "BatchNormalization" && use.operand >= 3)
        names.insert(t.name);
  return names;
}

/// Calls `f` with the tensors that stand in a subgraph, initializers and
/// Constant nodes, under the names that its nodes read.
static void forEachInnerTensor(const Graph &graph,
                               llvm::function_ref<void(const TensorData &)> f) {
  for (const TensorData &t : graph.initializers)
    f(t);
  for (const Node &node : graph.nodes)
    for (const Attribute &a : node.attributes) {
      if (a.graph)
        forEachInnerTensor(*a.graph, f);
      if (a.tensor && node.op == "Constant" && node.outputs.size() == 1) {
        TensorData named = *a.tensor;
        named.name = node.outputs[0];
        f(named);
      }
    }
}

/// Only initializers of the main graph train: weights inside of a loop or a
/// branch should not stay behind in silence.
static void noteInnerWeights(const Model &model, const Uses &uses,
                             const Derived &derived, Diagnostics &diagnostics) {
  std::vector<std::string> names;
  std::string where;
  for (const Node &node : model.graph.nodes)
    for (const Attribute &a : node.attributes)
      if (a.graph)
        forEachInnerTensor(*a.graph, [&](const TensorData &t) {
          if (!isFloating(t.type) || t.dims.size() < 2 || t.elements() < 2 ||
              byStructure(model, t, uses, derived).role != Role::Weight)
            return;
          names.push_back(t.name);
          where = where.empty() ? node.op : where;
        });
  if (!names.empty())
    diagnostics.note(
        "weights inside of a subgraph of " + where + " do not train ('" +
        names[0] + "'" +
        (names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more"
                          : "") +
        "): only initializers of the main graph do; export them as such, the "
        "subgraph sees them there");
}

/// "--freeze '.*' --train-only 'a'"
static std::string chosen(const ImportOptions &options) {
  std::string text;
  for (const auto &[name, patterns] :
       {std::pair("--freeze", &options.freeze),
        std::pair("--train-only", &options.trainOnly)})
    for (const std::string &pattern : *patterns)
      text +=
          std::string(text.empty() ? "" : " ") + name + " '" + pattern + "'";
  return text;
}

std::vector<Classification> classify(const Model &model,
                                     const ImportOptions &options,
                                     Diagnostics &diagnostics) {
  const Uses uses(model);
  const Derived derived(model, uses);
  const std::set<std::string> targets = parameterTargets(model.graph.metadata);
  std::unordered_map<std::string, const Metadata *> metadata;
  for (const ValueInfo &info : model.graph.valueInfo)
    metadata.emplace(info.name, &info.metadata);
  for (const ValueInfo &info : model.graph.inputs)
    metadata.emplace(info.name, &info.metadata);
  const auto statistics = runningStatistics(uses, model);
  Patterns freeze("--freeze", options.freeze, diagnostics);
  Patterns trainOnly("--train-only", options.trainOnly, diagnostics);

  std::vector<Classification> out;
  std::vector<std::string> weights;
  for (const TensorData &t : model.graph.initializers) {
    Classification c;
    std::optional<Classification> said;
    if (const auto m = metadata.find(t.name); m != metadata.end())
      said = byMetadata(t.name, *m->second, targets);
    if (!isFloating(t.type))
      c = {Role::Buffer, "not floating-point"};
    else if (t.elements() == 0)
      c = {Role::Buffer, "without elements"};
    else if (statistics.count(t.name))
      c = {Role::State, "a running statistic of a batch norm"};
    else
      c = said ? *said : byStructure(model, t, uses, derived);
    if (c.role == Role::Weight && isSinusoidal(model, t))
      c = {Role::Buffer, "a table of sines and cosines"};
    if (c.role == Role::Weight) {
      weights.push_back(t.name);
      const bool frozen = freeze.match(t.name);
      const bool chosen = trainOnly.match(t.name);
      if (frozen)
        c = {Role::Frozen, "--freeze"};
      else if (!options.trainOnly.empty() && !chosen)
        c = {Role::Frozen, "not in --train-only"};
      else if (options.forwardOnly)
        c = {Role::Frozen, "--forward-only", options.evaluates};
    }
    c.uses = static_cast<int>(uses.of(t.name).size());
    out.push_back(std::move(c));
  }
  noteInnerWeights(model, uses, derived, diagnostics);
  freeze.reportUnmatched(weights, diagnostics);
  trainOnly.reportUnmatched(weights, diagnostics);
  const bool trains = llvm::any_of(
      out, [](const Classification &c) { return c.role == Role::Weight; });
  if (!trains && !weights.empty() && !options.forwardOnly &&
      diagnostics.empty())
    diagnostics.add(Exit::Usage,
                    "the " + std::to_string(weights.size()) +
                        " weights of the model are all frozen by " +
                        chosen(options),
                    "leave some to train, or run the model as it is with "
                    "--forward-only");
  return out;
}

} // namespace pipec::onnx
