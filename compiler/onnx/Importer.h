//===- Importer.h - the walk over an ONNX graph, private --------*- C++ -*-===//

#pragma once

#include "compiler/onnx/NodeContext.h"

namespace pipec::onnx {

/// The names visible at a place of the graph. A subgraph sees the outer scope,
/// a function only its parameters.
struct Scope {
  std::map<std::string, Val> values;
  const Scope *outer = nullptr;
  /// Attributes that references in a function body stand for.
  std::map<std::string, Attribute> bindings;
  const std::map<std::string, int64_t> *opsets = nullptr;
  int depth = 0; ///< nested calls and subgraphs

  const Val *find(const std::string &name) const;
};

/// Imports one model.
class Importer {
public:
  Importer(const Model &model, const ImportOptions &options,
           mlir::MLIRContext &context, Diagnostics &diagnostics,
           ImportReport &report);
  mlir::OwningOpRef<mlir::ModuleOp> run();

  const ImportOptions &getOptions() const { return options; }
  void note(const std::string &text) { diagnostics.note(text); }
  /// Tells an operator that has the samples of `x` on axis 1, by its name: the
  /// note is due where x comes straight from an input whose axis 0 counts them.
  void samplesOnSecondAxis(mlir::Value x, const std::string &who);

  /// Runs a subgraph of the node being imported, inputs bound to `arguments`.
  /// Throws NodeError when a node in it cannot be imported.
  std::vector<Val> runSubgraph(const Graph &graph,
                               const std::vector<Val> &arguments);

private:
  bool checkVersions();
  void classifyInitializers();
  void tieCopies(Scope &scope);
  void tieRepetitions(Scope &scope);
  bool makeInputs(Scope &scope);
  std::optional<llvm::SmallVector<int64_t>> fixShape(const ValueInfo &input);
  std::string batchSymbol() const;
  int64_t batchAxis(const ValueInfo &input) const;
  void noteBatchNamedSecond();
  void noteBatchSecond(const std::string &input, const std::string &why);
  bool countsSamplesToo(const ValueInfo &input, const std::string &batch) const;
  bool constantInput(const ValueInfo &input, Scope &scope);
  void readConstants();
  void reportUnknownOptions();

  /// `results`: names that are read after the nodes.
  void importNodes(const std::vector<Node> &nodes,
                   const std::set<std::string> &results, Scope &scope);
  void importNode(const Node &node, Scope &scope);
  /// Whether the name is an initializer of strings.
  bool holdsStrings(const std::string &name) const;
  /// Throws NodeError for an operator or a version that is not supported.
  void checkOperator(const Node &node, const Scope &scope);
  /// Reports all such nodes of the main graph.
  void checkOperators(const Scope &scope);
  const Function *localFunction(const Node &node) const;
  void callFunction(const Node &node, const Function &function, Scope &scope,
                    const std::vector<Val> &arguments);
  mlir::Location locationOf(const Node &node);
  std::string sourceOf(const Node &node) const;
  void problem(const Node &node, const Scope &scope, const NodeError &error);

  bool makeOutputs(const Scope &scope);
  void noteOtherShapes(llvm::ArrayRef<mlir::Value> values);
  void widenNarrowOps();
  void signUnsignedOps();
  llvm::DenseSet<mlir::Value> valuesThatCountSamples();
  int64_t outputBatchAxis(const ValueInfo &output, mlir::Value value);
  int64_t samplesElsewhere(const ValueInfo &output) const;
  void declareParameters();
  void removeDeadOps();
  bool isMerged(size_t i) const;
  void findTwins();
  void findMergedParameters();
  void noteMergedTensors();
  void noteComputedWeights();
  void noteDroppedBiases();
  void findMerged();
  Val splitMerged(const Node &node, size_t input, const Val &v);
  void fillReport();

  const Model &model;
  const ImportOptions &options;
  mlir::MLIRContext &context;
  Diagnostics &diagnostics;
  ImportReport &report;

  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp function;
  std::unique_ptr<Emitter> emitter;
  std::vector<std::shared_ptr<Initializer>> initializers;
  std::deque<TensorData> repeated; ///< first parts of tensors that repeat
  std::vector<Classification> classes;
  std::vector<const ValueInfo *> inputs; ///< those that are data
  Scope *current = nullptr;              ///< of the node being imported
  int64_t nodesImported = 0;
  std::map<std::string, std::vector<std::string>> missingDims;
  std::set<std::string> knownSymbols;
  std::map<std::string, std::string> constants; ///< of the options, to files
  /// Merged tensors that are split, to whether a place has the original.
  std::map<const Initializer *, bool> merged;
  /// By the name of an initializer: names that it stands for, which are its own
  /// but for their numbers.
  std::map<std::string, std::vector<std::string>> twinsOf;
  /// The same for parameters that the exporter names but left no trace of.
  std::map<std::string, std::vector<std::string>> mergedInto;
  std::vector<mlir::Attribute> splits, ties;
};

} // namespace pipec::onnx
