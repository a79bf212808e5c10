//===- CostModel.cpp - a model's costs for the planner --------------------===//
//
// The gradient graph of a copy of the module is attributed node by node: every
// gradient op carries the number of the node it belongs to, just as it later
// carries the stage. What the backward pass reads of the forward pass is what a
// stage keeps.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/CostModel.h"

#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace pipec::nn;

namespace pipec {
namespace {

constexpr llvm::StringLiteral kNode = "pipe.node";

plan::OpKind kindOf(Operation *op) {
  if (isa<MatmulOp>(op))
    return plan::OpKind::MatMul;
  if (auto costed = dyn_cast<Costed>(op); costed && costed.isContraction())
    return plan::OpKind::Convolution;
  if (isa<ReduceOp, SoftmaxOp>(op))
    return plan::OpKind::Reduction;
  return plan::OpKind::Elementwise;
}

/// The type that decides which units a contraction runs on.
plan::DType dtypeOf(Operation *op) {
  auto costed = dyn_cast<Costed>(op);
  if (!costed || !costed.isContraction())
    return plan::DType::F32;
  Type element = tensorType(op->getOperand(0)).getElementType();
  return element.isBF16()  ? plan::DType::BF16
         : element.isF16() ? plan::DType::F16
                           : plan::DType::F32;
}

class GraphBuilder {
public:
  GraphBuilder(ModuleOp module, bool trains, const plan::DeviceModel &device,
               plan::CostGraph &graph)
      : module(module), trains(trains), device(device), graph(graph) {}

  LogicalResult run() {
    OwningOpRef<ModuleOp> copy(cast<ModuleOp>(module->clone()));
    func::FuncOp main = mainFunction(*copy);
    if (!main || failed(differentiate(*copy, main)))
      return failure();
    nodes = modelNodes(main);
    addNodes(main);
    addValues(main);
    addWeights(*copy, main);
    addStashes(main);
    addPins(main);
    return success();
  }

private:
  /// Differentiates with the node's number as the stage, then chooses the stash
  /// as for one stage.
  LogicalResult differentiate(ModuleOp copy, func::FuncOp main) {
    Builder b(copy.getContext());
    for (auto [i, op] : llvm::enumerate(modelNodes(main)))
      op->setAttr(trains ? kOpStage : kNode, b.getI64IntegerAttr(i));
    if (!trains)
      return success();
    PassManager first(copy.getContext());
    first.addPass(createDifferentiate());
    if (failed(first.run(copy)))
      return failure();
    for (Operation &op : main.front().without_terminator()) {
      if (Attribute node = op.getAttr(kOpStage))
        op.setAttr(kNode, node);
      op.setAttr(kOpStage, b.getI64IntegerAttr(0));
    }
    PassManager second(copy.getContext());
    second.addPass(createChooseStash());
    return second.run(copy);
  }

  static int64_t nodeOf(Operation *op) {
    auto attr = op->getAttrOfType<IntegerAttr>(kNode);
    return attr ? attr.getInt() : -1;
  }

  double seconds(Operation *op) {
    auto costed = dyn_cast<Costed>(op);
    if (!costed || (costed.flops() == 0 && costed.bytesMoved() == 0))
      return 0;
    // Elementwise work is fused: its operands come from registers, so that
    // only about a result's worth of bytes moves; launches are shared too.
    plan::OpKind kind = kindOf(op);
    double bytes = costed.bytesMoved();
    if (kind == plan::OpKind::Elementwise)
      bytes /= 2 + op->getNumOperands();
    double s =
        plan::opSeconds(device, costed.flops(), bytes, kind, dtypeOf(op));
    return kind == plan::OpKind::Elementwise
               ? std::max(0.0, s - 0.75 * device.launchSeconds)
               : s;
  }

  void addNodes(func::FuncOp main) {
    for (auto [i, op] : llvm::enumerate(nodes)) {
      plan::CostNode node;
      node.id = std::to_string(i);
      node.name = nodeName(op);
      node.forwardSeconds = seconds(op);
      if (auto costed = dyn_cast<Costed>(op))
        node.flops = costed.flops();
      graph.nodes.push_back(node);
    }
    addBackwardSeconds(main);
  }

  /// Nodes that compute with weights and constants alone, as the broadcast of a
  /// bias does: nobody waits for what goes back through them.
  llvm::DenseSet<int64_t> weightNodes() {
    llvm::DenseSet<int64_t> result;
    for (auto [i, op] : llvm::enumerate(nodes))
      if (llvm::all_of(op->getOperands(), [&](Value v) {
            Operation *def = v.getDefiningOp();
            return def && (nodeOf(def) < 0 || result.contains(nodeOf(def)));
          }))
        result.insert(i);
    return result;
  }

  /// Input gradients are what other nodes wait for; the rest is weight
  /// gradient.
  void addBackwardSeconds(func::FuncOp main) {
    const llvm::DenseSet<int64_t> ofWeights = weightNodes();
    llvm::DenseSet<Operation *> waitedFor;
    for (Operation &op : llvm::reverse(main.front())) {
      if (!isBackward(&op) || nodeOf(&op) < 0)
        continue;
      for (Operation *user : op.getUsers())
        if (waitedFor.contains(user) ||
            (!isa<pipe::AccumulateOp>(user) && nodeOf(user) != nodeOf(&op) &&
             !ofWeights.contains(nodeOf(user))))
          waitedFor.insert(&op);
      plan::CostNode &node = graph.nodes[nodeOf(&op)];
      (waitedFor.contains(&op) ? node.backwardInputSeconds
                               : node.backwardWeightSeconds) += seconds(&op);
    }
  }

  void addValues(func::FuncOp main) {
    for (auto [i, op] : llvm::enumerate(nodes))
      for (Value v : op->getResults()) {
        plan::CostValue value{i, byteSize(v.getType()), 0, {}};
        std::set<size_t> readers;
        for (Operation *user : v.getUsers())
          if (!isBackward(user) && nodeOf(user) > static_cast<int64_t>(i))
            readers.insert(nodeOf(user));
        value.consumers.assign(readers.begin(), readers.end());
        if (trains && isFloat(v))
          value.gradientBytes = value.bytes;
        if (!value.consumers.empty())
          graph.values.push_back(value);
      }
  }

  /// The nodes that read a source, through chains of sources.
  void collectReaders(Operation *source, std::set<size_t> &readers) {
    for (Operation *user : source->getUsers()) {
      if (isBackward(user))
        continue;
      if (nodeOf(user) >= 0)
        readers.insert(nodeOf(user));
      else
        collectReaders(user, readers);
    }
  }

  void addWeights(ModuleOp copy, func::FuncOp main) {
    llvm::MapVector<StringRef, std::set<size_t>> readers;
    for (Operation &op : main.front()) {
      if (auto weight = dyn_cast<WeightOp>(op); weight && !isBackward(&op))
        collectReaders(&op, readers[weight.getParameter()]);
      if (auto track = dyn_cast<TrackOp>(op))
        readers[track.getParameter()].insert(nodeOf(&op));
    }
    SymbolTable parameters(copy);
    for (auto &[name, users] : readers) {
      auto parameter = parameters.lookup<ParameterOp>(name);
      graph.weights.push_back({name.str(),
                               byteSize(parameter.getType()),
                               {users.begin(), users.end()},
                               parameter.isTrained()});
    }
  }

  /// A kept tensor stays on the stage that made it and on those that received
  /// and read it again.
  void addStashes(func::FuncOp main) {
    for (Operation *op : nodes)
      for (Value v : op->getResults()) {
        std::set<size_t> users;
        for (Operation *user : v.getUsers())
          if (isBackward(user) && nodeOf(user) >= 0)
            users.insert(nodeOf(user));
        if (users.empty())
          continue;
        users.insert(nodeOf(op));
        graph.stashes.push_back(
            {byteSize(v.getType()), {users.begin(), users.end()}});
      }
  }

  /// Readers of one nn.weight op came from one model operator: one stage.
  void addPins(func::FuncOp main) {
    for (Operation &op : main.front()) {
      std::set<size_t> readers;
      if (auto weight = dyn_cast<WeightOp>(op); weight && !isBackward(&op))
        collectReaders(&op, readers);
      if (readers.size() > 1)
        graph.pinTogether.push_back({readers.begin(), readers.end()});
    }
  }

  ModuleOp module;
  bool trains;
  const plan::DeviceModel &device;
  plan::CostGraph &graph;
  SmallVector<Operation *> nodes;
};

} // namespace

LogicalResult costGraph(ModuleOp module, bool trains,
                        const plan::DeviceModel &device,
                        plan::CostGraph &graph) {
  return GraphBuilder(module, trains, device, graph).run();
}

} // namespace pipec
