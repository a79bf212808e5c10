//===- Importer.cpp - the walk over an ONNX graph -------------------------===//
#include "compiler/onnx/Importer.h"
#include "compiler/onnx/GraphChecks.h"
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Reader.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"

#include <filesystem>

using namespace mlir;

namespace pipec::onnx {

/// Older opsets write what this importer reads as something else.
static constexpr int64_t kOldestOpset = 7;
/// Nodes after unrolling and inlining.
static constexpr int64_t kMostNodes = 4'000'000;
/// Calls and subgraphs nested deeper than this are a cycle or an attack.
static constexpr int kDeepestScope = 64;

const Val *Scope::find(const std::string &name) const {
  for (const Scope *s = this; s; s = s->outer)
    if (auto found = s->values.find(name); found != s->values.end())
      return &found->second;
  return nullptr;
}

Importer::Importer(const Model &model, const ImportOptions &options,
                   MLIRContext &context, Diagnostics &diagnostics,
                   ImportReport &report)
    : model(model), options(options), context(context),
      diagnostics(diagnostics), report(report) {}

//===----------------------------------------------------------------------===//
// Before the walk
//===----------------------------------------------------------------------===//

bool Importer::checkVersions() {
  const auto opset = model.opsets.find("");
  if (opset == model.opsets.end() || opset->second < kOldestOpset) {
    diagnostics.add(
        Exit::BadModel,
        opset == model.opsets.end()
            ? "the model names no version of the ONNX operators"
            : "the model uses opset " + std::to_string(opset->second) +
                  "; the oldest supported is " + std::to_string(kOldestOpset),
        "export the model again with opset 13 or newer");
    return false;
  }
  report.opset = opset->second;
  if (const int64_t newest = newestOpset(); report.opset > newest)
    note("the model uses opset " + std::to_string(report.opset) +
         ", its operators are read as those of opset " +
         std::to_string(newest) +
         ", the newest known here: should the losses differ from the "
         "framework's, export it with that one");
  report.irVersion = model.irVersion;
  report.producer = model.producer;
  if (!model.producerVersion.empty())
    report.producer += " " + model.producerVersion;
  report.nodes = static_cast<int64_t>(model.graph.nodes.size());
  if (model.hasTrainingInfo)
    note("the model's training_info is not used; loss and optimizer come from "
         "the options");
  return true;
}

void Importer::classifyInitializers() {
  classes = classify(model, options, diagnostics);
  // The function's own name is taken.
  knownSymbols = {"main"};
  for (size_t i = 0; i < classes.size(); ++i) {
    auto init = std::make_shared<Initializer>();
    init->data = &model.graph.initializers[i];
    init->role = classes[i].role;
    init->masters = classes[i].masters;
    init->reason = classes[i].reason;
    init->symbol = init->data->name;
    for (int n = 1; !knownSymbols.insert(init->symbol).second; ++n)
      init->symbol = init->data->name + "." + std::to_string(n);
    // Tensors that were never weights take part in folding while they are
    // small.
    init->folds =
        init->role == Role::Buffer && init->data->elements() <= kFoldedTensor;
    initializers.push_back(std::move(init));
  }
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

/// The innermost `File "x.py", line 12` of a Python stack trace.
static std::pair<std::string, unsigned> lastFrame(const std::string &trace) {
  static const std::string mark = "File \"";
  const size_t at = trace.rfind(mark);
  if (at == std::string::npos)
    return {};
  const size_t begin = at + mark.size(), end = trace.find('"', begin);
  const size_t line =
      trace.find("line ", end == std::string::npos ? begin : end);
  if (end == std::string::npos || line == std::string::npos)
    return {};
  const unsigned number = static_cast<unsigned>(
      std::strtoul(trace.c_str() + line + 5, nullptr, 10));
  return {trace.substr(begin, end - begin), number};
}

static constexpr const char *kStackTrace = "pkg.torch.onnx.stack_trace";

std::string Importer::sourceOf(const Node &node) const {
  const std::string *trace = lookup(node.metadata, kStackTrace);
  if (!trace)
    return "";
  const auto [file, line] = lastFrame(*trace);
  return file.empty() ? "" : file + ":" + std::to_string(line);
}

/// A name for a node that has none: that of its first output.
static std::string displayName(const Node &node) {
  if (!node.name.empty())
    return node.name;
  for (const std::string &output : node.outputs)
    if (!output.empty())
      return output;
  return node.op;
}

Location Importer::locationOf(const Node &node) {
  Location child = FileLineColLoc::get(&context, model.files[0].relative, 0, 0);
  if (const std::string *trace = lookup(node.metadata, kStackTrace)) {
    const auto [file, line] = lastFrame(*trace);
    if (!file.empty())
      child = FileLineColLoc::get(&context, file, line, 0);
  }
  return NameLoc::get(StringAttr::get(&context, displayName(node)), child);
}

void Importer::problem(const Node &node, const Scope &scope,
                       const NodeError &error) {
  Diagnostic d;
  d.node = displayName(node);
  d.op = node.op;
  d.domain = node.domain;
  if (scope.opsets)
    if (auto found = scope.opsets->find(node.domain);
        found != scope.opsets->end())
      d.opset = found->second;
  d.location = sourceOf(node);
  d.cause = error.cause;
  d.remedy = error.remedy;
  diagnostics.add(std::move(d));
}

const Function *Importer::localFunction(const Node &node) const {
  for (const Function &f : model.functions)
    if (f.name == node.op && f.domain == node.domain &&
        f.overload == node.overload)
      return &f;
  return nullptr;
}

void Importer::checkOperators(const Scope &scope) {
  for (const Node &node : model.graph.nodes) {
    try {
      if (!localFunction(node))
        checkOperator(node, scope);
    } catch (const NodeError &error) {
      problem(node, scope, error);
    }
  }
}

void Importer::checkOperator(const Node &node, const Scope &scope) {
  const OpRow *row = findOp(node.domain, node.op);
  const auto opset = scope.opsets->find(node.domain);
  const RefusedOp *refused =
      node.domain.empty() ? findRefused(node.op) : nullptr;
  if (refused)
    throw NodeError{"the operator " + node.op +
                        " is not supported: " + std::string(refused->reason),
                    std::string(refused->remedy)};
  if (!row) {
    const std::string full =
        node.domain.empty() ? node.op : node.domain + "." + node.op;
    const bool isForeign = node.domain.empty() &&
                           opset != scope.opsets->end() &&
                           opset->second <= newestOpset();
    throw NodeError{"the operator " + full + " is not supported",
                    "`pipec list ops` names those that are; " +
                        (isForeign
                             ? "ONNX has no " + node.op +
                                   ": the exporter left what it could not "
                                   "translate, write that layer otherwise"
                             : "rewrite this part of the model with them")};
  }
  if (opset == scope.opsets->end())
    throw NodeError{"the model imports no version of the domain '" +
                        node.domain + "'",
                    "export the model again"};
  if (opset->second < row->since.front())
    throw NodeError{"the operator is new in opset " +
                        std::to_string(row->since.front()),
                    "export the model again with that opset or a newer one"};
}

bool Importer::holdsStrings(const std::string &name) const {
  return llvm::any_of(model.graph.initializers, [&](const TensorData &t) {
    return t.name == name && t.type == ElementType::String;
  });
}

void Importer::importNode(const Node &node, Scope &scope) {
  if (++nodesImported > kMostNodes)
    throw NodeError{"loops and functions unroll to more than " +
                        std::to_string(kMostNodes) + " nodes",
                    "export the model with shorter loops"};
  const Function *local = localFunction(node);
  if (!local)
    checkOperator(node, scope);
  std::vector<Val> arguments;
  for (const std::string &input : node.inputs) {
    const Val *v = input.empty() ? nullptr : scope.find(input);
    if (!input.empty() && !v)
      throw NodeError{"its input '" + input + "' is not defined",
                      "the file is malformed; export the model again"};
    if (v && !*v && holdsStrings(input))
      throw NodeError{"its input '" + input + "' holds strings",
                      "strings are not supported; leave them out of the "
                      "export"};
    if (v && !*v) {
      // The node that makes it was reported; nothing to say here.
      for (const std::string &output : node.outputs)
        if (!output.empty())
          scope.values[output] = Val();
      return;
    }
    arguments.push_back(v ? splitMerged(node, arguments.size(), *v) : Val());
  }
  emitter->beginNode(locationOf(node), displayName(node));
  if (local) {
    callFunction(node, *local, scope, arguments);
    return;
  }
  NodeContext c(node, scope.opsets->find(node.domain)->second, *emitter, *this,
                std::move(arguments), scope.bindings);
  Scope *const before = current;
  current = &scope;
  findOp(node.domain, node.op)->import(c);
  report.hasBatchNorms |=
      node.domain.empty() && node.op == "BatchNormalization";
  current = before;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty())
      continue;
    if (!c.getOutputs()[i])
      throw NodeError{"its output " + std::to_string(i) + " is not supported",
                      ""};
    scope.values[node.outputs[i]] = c.getOutputs()[i];
  }
}

void Importer::importNodes(const std::vector<Node> &nodes,
                           const std::set<std::string> &results, Scope &scope) {
  // Values go when their last reader has been imported: a folded mask program
  // would otherwise keep all its intermediate tensors.
  std::unordered_map<std::string, int> readers;
  const auto forEachRead = [&](const Node &node, auto f) {
    for (const std::string &input : node.inputs)
      f(input);
    for (const Attribute &a : node.attributes)
      if (a.graph)
        for (const std::string &name : freeNames(*a.graph))
          f(name);
  };
  for (const Node &node : nodes)
    forEachRead(node, [&](const std::string &name) { ++readers[name]; });
  for (const size_t i : topologicalOrder(nodes)) {
    const Node &node = nodes[i];
    try {
      importNode(node, scope);
    } catch (const NodeError &error) {
      if (scope.depth > 0) // one entry for the node that contains this one
        throw NodeError{"inside it, node '" + displayName(node) + "' (" +
                            node.op + "): " + error.cause,
                        error.remedy};
      problem(node, scope, error);
      for (const std::string &output : node.outputs)
        if (!output.empty())
          scope.values[output] = Val();
    }
    forEachRead(node, [&](const std::string &name) {
      if (--readers[name] == 0 && !results.count(name))
        scope.values.erase(name);
    });
  }
}

void Importer::callFunction(const Node &node, const Function &function,
                            Scope &scope, const std::vector<Val> &arguments) {
  Scope inner;
  inner.depth = scope.depth + 1;
  if (inner.depth > kDeepestScope)
    throw NodeError{"functions call each other without end",
                    "the file is malformed; export the model again"};
  inner.opsets = &function.opsets;
  for (size_t i = 0; i < function.inputs.size(); ++i)
    inner.values[function.inputs[i]] =
        i < arguments.size() ? arguments[i] : Val();
  for (const Attribute &a : function.defaults)
    inner.bindings[a.name] = a;
  for (const Attribute &a : node.attributes) {
    if (a.reference.empty())
      inner.bindings[a.name] = a;
    else if (auto bound = scope.bindings.find(a.reference);
             bound != scope.bindings.end())
      inner.bindings[a.name] = bound->second;
  }
  importNodes(
      function.nodes,
      std::set<std::string>(function.outputs.begin(), function.outputs.end()),
      inner);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const Val *v =
        i < function.outputs.size() ? inner.find(function.outputs[i]) : nullptr;
    if (!node.outputs[i].empty())
      scope.values[node.outputs[i]] = v ? *v : Val();
  }
}

static std::set<std::string> outputNames(const Graph &graph) {
  std::set<std::string> names;
  for (const ValueInfo &output : graph.outputs)
    names.insert(output.name);
  return names;
}

std::vector<Val> Importer::runSubgraph(const Graph &graph,
                                       const std::vector<Val> &arguments) {
  Scope inner;
  inner.outer = current;
  inner.opsets = current->opsets;
  inner.bindings = current->bindings;
  inner.depth = current->depth + 1;
  if (inner.depth > kDeepestScope)
    throw NodeError{"subgraphs are nested too deeply", ""};
  for (const TensorData &t : graph.initializers) {
    const RankedTensorType type = tensorType(&context, t);
    if (!t.problem.empty() || !type)
      throw NodeError{
          "initializer '" + t.name + "' of its subgraph: " +
              (t.problem.empty() ? "type not supported" : t.problem),
          "export the model again"};
    inner.values[t.name] = readLiteral(&context, model, t);
  }
  for (size_t i = 0; i < graph.inputs.size() && i < arguments.size(); ++i)
    inner.values[graph.inputs[i].name] = arguments[i];
  importNodes(graph.nodes, outputNames(graph), inner);
  std::vector<Val> results;
  for (const ValueInfo &output : graph.outputs) {
    const Val *v = inner.find(output.name);
    if (!v || !*v)
      throw NodeError{"its subgraph does not make '" + output.name + "'", ""};
    results.push_back(*v);
  }
  current = const_cast<Scope *>(inner.outer);
  return results;
}

//===----------------------------------------------------------------------===//
// The whole
//===----------------------------------------------------------------------===//

OwningOpRef<ModuleOp> Importer::run() {
  if (!checkVersions() || !checkGraph(model, diagnostics))
    return {};
  classifyInitializers();
  OpBuilder b(&context);
  module = ModuleOp::create(
      FileLineColLoc::get(&context, model.files[0].relative, 0, 0));
  b.setInsertionPointToEnd(module->getBody());
  function = func::FuncOp::create(b, module->getLoc(), "main",
                                  b.getFunctionType({}, {}));
  Block *block = function.addEntryBlock();
  emitter = std::make_unique<Emitter>(&context, model, block, knownSymbols);
  Scope scope;
  scope.opsets = &model.opsets;
  if (!makeInputs(scope)) {
    checkOperators(scope);
    return {};
  }
  for (const auto &init : initializers) {
    const RankedTensorType type = tensorType(&context, *init->data);
    scope.values[init->data->name] =
        type && init->data->problem.empty() ? Val(init, type) : Val();
  }
  tieCopies(scope);
  tieRepetitions(scope);
  findTwins();
  findMergedParameters();
  findMerged();
  importNodes(model.graph.nodes, outputNames(model.graph), scope);
  if (!makeOutputs(scope) || !diagnostics.empty())
    return {};
  removeDeadOps();
  signUnsignedOps();
  widenNarrowOps();
  declareParameters();
  if (!splits.empty())
    (*module)->setAttr("nn.splits", ArrayAttr::get(&context, splits));
  if (!ties.empty())
    (*module)->setAttr("nn.ties", ArrayAttr::get(&context, ties));
  fillReport();
  return std::move(module);
}

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

int64_t ImportReport::trainedTensors() const {
  return llvm::count_if(tensors,
                        [](const TensorReport &t) { return t.trains; });
}

int64_t ImportReport::trainedElements() const {
  int64_t n = 0;
  for (const TensorReport &t : tensors)
    n += t.trains ? t.elements : 0;
  return n;
}

static OwningOpRef<ModuleOp> importRead(const Model &model,
                                        const ImportOptions &options,
                                        MLIRContext &context,
                                        Diagnostics &diagnostics,
                                        ImportReport &report) {
  context.loadDialect<func::FuncDialect, nn::NNDialect>();
  std::string errors;
  ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &d) {
    errors += (errors.empty() ? "" : "; ") + d.str();
    return success();
  });
  OwningOpRef<ModuleOp> module;
  try {
    module = Importer(model, options, context, diagnostics, report).run();
  } catch (const std::bad_alloc &) {
    diagnostics.add(Exit::BadModel,
                    "the import needs more memory than this machine has",
                    "check the sizes given with --dim");
    return {};
  }
  if (module && failed(verify(*module))) {
    diagnostics.add(Exit::Internal,
                    "the imported program is not valid: " + errors,
                    "report this with the model");
    return {};
  }
  return module;
}

OwningOpRef<ModuleOp> importModel(const std::string &path,
                                  const ImportOptions &options,
                                  MLIRContext &context,
                                  Diagnostics &diagnostics,
                                  ImportReport &report) {
  const std::unique_ptr<Model> model = readModel(path, diagnostics);
  if (!model)
    return {};
  return importRead(*model, options, context, diagnostics, report);
}

OwningOpRef<ModuleOp>
importModel(StringRef bytes, const std::string &name, const std::string &folder,
            const ImportOptions &options, MLIRContext &context,
            Diagnostics &diagnostics, ImportReport &report) {
  const std::unique_ptr<Model> model =
      readModel({bytes.data(), bytes.size()}, name, folder, diagnostics);
  if (!model)
    return {};
  return importRead(*model, options, context, diagnostics, report);
}

} // namespace pipec::onnx
