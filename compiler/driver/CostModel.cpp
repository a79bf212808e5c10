//===- CostModel.cpp - a model's costs for the planner --------------------===//
//
// The gradient graph of a copy of the module is attributed node by node: every
// gradient op carries the number of the node it belongs to, just as it later
// carries the stage. What the backward pass reads of the forward pass is what a
// stage keeps.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/CostModel.h"

#include "compiler/driver/OpKinds.h"
#include "compiler/driver/Repetitions.h"
#include "compiler/driver/RoutineWork.h"
#include "compiler/driver/Shardings.h"
#include "compiler/driver/TaskCosts.h"
#include "compiler/driver/Workspace.h"
#include "dialects/nn/EvenRows.h"
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Passes.h"
#include "passes/RoundWeights.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <numeric>

using namespace mlir;
using namespace pipec::nn;

namespace pipec {
namespace {

int64_t elements(ArrayRef<int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t(1),
                         std::multiplies<>());
}

plan::KernelWork workOf(MatmulOp op, const plan::ProductTile &tile) {
  ArrayRef<int64_t> a = tensorType(op.getA()).getShape(),
                    y = tensorType(op.getY()).getShape();
  plan::ProductShape shape;
  shape.batch = elements(y.drop_back(2));
  shape.m = y[y.size() - 2], shape.n = y.back();
  shape.k = a[a.size() - (op.getTransposeA() ? 2 : 1)];
  shape.transposeA = op.getTransposeA();
  shape.transposeB = op.getTransposeB();
  shape.bf16 = dtypeOf(op) == plan::DType::BF16;
  return plan::productWork(shape, tile);
}

/// `x` is the input side, `y` the output side.
template <typename Op>
plan::KernelWork workOf(Op op, Value x, Value w, Value y, PipecConvKind which,
                        const plan::ProductTile &tile) {
  ArrayRef<int64_t> in = tensorType(x).getShape(),
                    out = tensorType(y).getShape(),
                    kernel = tensorType(w).getShape();
  PipecConv d = {};
  d.dtype = PIPEC_F32;
  d.spatial_rank = static_cast<int32_t>(in.size()) - 2;
  if (d.spatial_rank < 1 || d.spatial_rank > 3)
    return {};
  d.n = in[0], d.c = in[1], d.o = kernel[0];
  d.groups = static_cast<int32_t>(op.getGroups());
  for (int32_t i = 0; i < d.spatial_rank; ++i) {
    d.in[i] = in[i + 2], d.out[i] = out[i + 2], d.kernel[i] = kernel[i + 2];
    d.stride[i] = op.getStrides()[i], d.dilation[i] = op.getDilations()[i];
    d.pad_lo[i] = op.getPadsLow()[i], d.pad_hi[i] = op.getPadsHigh()[i];
  }
  return routineWork(d, which, tile);
}

/// What the kernel library is asked for; no kernel for what it is not.
plan::KernelWork workOf(Operation *op, const plan::ProductTile &tile) {
  if (auto product = dyn_cast<MatmulOp>(op))
    return workOf(product, tile);
  if (auto conv = dyn_cast<ConvOp>(op))
    return workOf(conv, conv.getX(), conv.getW(), conv.getY(),
                  PIPEC_CONV_FORWARD, tile);
  if (auto conv = dyn_cast<ConvGradInputOp>(op))
    return workOf(conv, conv.getDx(), conv.getW(), conv.getDy(),
                  PIPEC_CONV_BACKWARD_INPUT, tile);
  if (auto conv = dyn_cast<ConvGradWeightOp>(op))
    return workOf(conv, conv.getX(), conv.getDw(), conv.getDy(),
                  PIPEC_CONV_BACKWARD_WEIGHT, tile);
  return {};
}

/// Bytes of a tensor where it is kept, received or sent (PlanMemory).
int64_t placedBytes(Type type) {
  return static_cast<int64_t>(
      llvm::alignTo(static_cast<uint64_t>(byteSize(type)), 64));
}

class GraphBuilder {
public:
  GraphBuilder(ModuleOp module, const CostRequest &request,
               const plan::DeviceModel &device, plan::CostGraph &graph,
               Repeats &repeats)
      : module(module), request(request), trains(request.trains),
        device(device), graph(graph), repeats(repeats) {}

  LogicalResult run() {
    OwningOpRef<ModuleOp> copy(cast<ModuleOp>(module->clone()));
    func::FuncOp main = mainFunction(*copy);
    if (!main || failed(differentiate(*copy, main)))
      return failure();
    nodes = modelNodes(main);
    addNodes(main);
    addValues(main);
    addWeights(*copy, main);
    graph.roundedShare = roundedShare();
    addStashes(main);
    addEarlyStashes(main);
    addInputs(main);
    addHandovers(main);
    addFurtherUses(main);
    addPins(main);
    if (request.shards)
      graph.sharding = std::make_shared<const plan::ShardingGraph>(
          shardingGraph(main, graph, trains));
    graph.forwardTaskSeconds = device.taskSeconds;
    graph.backwardTaskSeconds = trains ? device.taskSeconds : 0;
    if (nodes.size() > kMostPlanned)
      return success();
    if (failed(planCode(*copy, main)))
      return failure();
    if (!knowsCalls(device))
      return success();
    return priceCalls(*copy, main);
  }

private:
  /// Differentiates with the node's number as the stage, then chooses the stash
  /// as for one stage.
  LogicalResult differentiate(ModuleOp copy, func::FuncOp main) {
    Builder b(copy.getContext());
    for (auto [i, op] : llvm::enumerate(modelNodes(main)))
      op->setAttr(kOpStage, b.getI64IntegerAttr(i));
    markSources(main);
    if (!trains) {
      noteNodes(main);
      return success();
    }
    PassManager first(copy.getContext());
    first.addPass(createDifferentiate());
    if (failed(first.run(copy)))
      return failure();
    noteNodes(main);
    if (request.workspace && request.recomputes &&
        modelNodes(main).size() <= kMostPlanned)
      unchosen = cast<ModuleOp>(copy->clone());
    PassManager second(copy.getContext());
    ChooseStashOptions stash;
    stash.mode = request.keepsAll ? "none" : "selective";
    second.addPass(createChooseStash(stash));
    markForward(main);
    if (failed(second.run(copy)))
      return failure();
    markReaders(main);
    return success();
  }

  /// The node of every op in place of its stage, or the one it is for.
  static void noteNodes(func::FuncOp main) {
    Builder b(main.getContext());
    for (Operation &op : main.front().without_terminator()) {
      if (auto stage = op.getAttrOfType<IntegerAttr>(kOpStage)) {
        const int64_t node = stage.getInt();
        op.setAttr(node < 0 ? kReader : kNode,
                   b.getI64IntegerAttr(node < 0 ? ~node : node));
      }
      op.setAttr(kOpStage, b.getI64IntegerAttr(0));
    }
  }

  /// What sources and their gradients are for, by ~node: they are none
  /// themselves, and are on the stage of the first node that reads them.
  static void markSources(func::FuncOp main) {
    Builder b(main.getContext());
    for (Operation &op : llvm::reverse(main.front().without_terminator())) {
      if (op.hasAttr(kOpStage))
        continue;
      int64_t first = INT64_MAX;
      for (Operation *user : op.getUsers())
        if (auto stage = user->getAttrOfType<IntegerAttr>(kOpStage))
          first = std::min(first, std::max(stage.getInt(), ~stage.getInt()));
      if (first < INT64_MAX)
        op.setAttr(kOpStage, b.getI64IntegerAttr(~first));
    }
  }

  /// What code works in and, on GPUs, how long its calls take.
  LogicalResult planCode(ModuleOp copy, func::FuncOp main) {
    const bool isGpu = device.kind != "cpu";
    if (!request.workspace && !isGpu)
      return success();
    const char *target = isGpu ? "cuda" : "cpu";
    markParts(main);
    TaskCosts costs;
    costs.nodes.assign(nodes.size(), {0, 0, 0});
    OwningOpRef<ModuleOp> other = copy.clone();
    const auto use = [&](fusion::TaskPlan &task) {
      if (request.workspace)
        addScratch(task, graph);
      return isGpu ? addCallCosts(task, device, costs) : success();
    };
    if (failed(planAsOne(*other, target, request.memory, use)))
      return failure();
    if (isGpu)
      takeSeconds(costs);
    if (request.workspace && unchosen)
      repeats = repeatsOf(std::move(unchosen), target, request.memory);
    return success();
  }

  /// Of what is not of a gradient.
  static void markParts(func::FuncOp main) {
    for (Operation &op : main.front().without_terminator())
      if (!op.hasAttr(kPart))
        mark(&op, isBackward(&op) ? Part::BackwardWeight : Part::Forward);
  }

  void takeSeconds(const TaskCosts &costs) {
    for (auto [node, seconds] : llvm::zip_equal(graph.nodes, costs.nodes)) {
      node.forwardSeconds = seconds[0];
      node.backwardInputSeconds = seconds[1];
      node.backwardWeightSeconds = seconds[2];
    }
  }

  /// Puts the times of generated code in place of the operators' own.
  LogicalResult priceCalls(ModuleOp copy, func::FuncOp main) {
    Builder b(copy.getContext());
    for (Operation &op : main.front().without_terminator())
      op.setAttr(kOpStage, b.getI64IntegerAttr(0));
    markParts(main);
    FailureOr<TaskCosts> costs =
        taskCosts(copy, nodes.size(), request.optimizer, device, workingSet(),
                  request.caches, request.memory);
    if (failed(costs))
      return failure();
    takeSeconds(*costs);
    graph.forwardTaskSeconds = plan::fixedSeconds(device, costs->forwardShares);
    if (trains)
      graph.backwardTaskSeconds =
          plan::fixedSeconds(device, costs->backwardShares);
    int64_t bytes = 0;
    for (const plan::CostWeight &weight : graph.weights)
      bytes += weight.trainable ? weight.bytes : 0;
    if (bytes > 0)
      graph.updateSecondsPerByte =
          (costs->update + request.microbatches * costs->track) / bytes;
    return success();
  }

  /// Bytes that a device goes through before it comes back to the first: its
  /// weights and their gradients, and what two microbatches keep.
  double workingSet() const {
    double bytes = 0;
    for (const plan::CostWeight &weight : graph.weights)
      bytes += static_cast<double>(weight.bytes) * (weight.trainable ? 2 : 1);
    for (const plan::CostStash &stash : graph.stashes)
      bytes += 2 * static_cast<double>(stash.bytes);
    return bytes / request.caches;
  }

  static void mark(Operation *op, Part part) {
    op->setAttr(kPart, Builder(op->getContext())
                           .getI64IntegerAttr(static_cast<int64_t>(part)));
  }

  double seconds(Operation *op) {
    auto costed = dyn_cast<Costed>(op);
    if (!costed || (costed.flops() == 0 && costed.bytesMoved() == 0))
      return 0;
    const plan::DType dtype = dtypeOf(op);
    if (!device.kernels.empty() &&
        (dtype == plan::DType::F32 ||
         (dtype == plan::DType::BF16 && isa<nn::MatmulOp>(op))))
      if (auto known = plan::kernelSeconds(device, workOf(op, device.tile)))
        return *known;
    // Elementwise work is fused: its operands come from registers, so that
    // only about a result's worth of bytes moves; launches are shared too (a
    // calibrated CPU's are small, but its caches have lost what was there).
    plan::OpKind kind = kindOf(op);
    const double shared = device.kernels.empty() ? 0.75 : 0;
    double bytes = costed.bytesMoved();
    if (kind == plan::OpKind::Elementwise)
      bytes /= 2 + op->getNumOperands();
    double s =
        plan::opSeconds(device, costed.flops(), bytes, kind, dtypeOf(op));
    return kind == plan::OpKind::Elementwise
               ? std::max(0.0, s - shared * device.launchSeconds)
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
    addSourceSeconds(main);
    addEarlySeconds(main);
    addBackwardSeconds(main);
  }

  /// What is made of weights and constants alone is made in every task that
  /// reads it; in backward ones by repetitions.
  void addSourceSeconds(func::FuncOp main) {
    for (Operation &op : main.front())
      if (!isBackward(&op) && nodeOf(&op) < 0 && firstReader(&op) >= 0 &&
          !isKeptRounded(&op))
        graph.nodes[firstReader(&op)].forwardSeconds += seconds(&op);
  }

  /// Gradients that forward computes, each on the node that it is of.
  void addEarlySeconds(func::FuncOp main) {
    for (Operation &op : main.front())
      if (isEarly(&op) && firstReader(&op) >= 0)
        graph.nodes[firstReader(&op)].forwardSeconds += seconds(&op);
  }

  /// The update rounds it.
  bool isKeptRounded(Operation *op) const {
    auto cast = dyn_cast<CastOp>(op);
    return cast && request.memory.keepsRounded && roundedWeight(cast);
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
  /// gradient. That of a source is its first reader's: of a weight that
  /// products read rounded it is all of the product.
  void addBackwardSeconds(func::FuncOp main) {
    const llvm::DenseSet<int64_t> ofWeights = weightNodes();
    llvm::DenseSet<Operation *> waitedFor;
    for (Operation &op : llvm::reverse(main.front())) {
      if (!isBackward(&op) || firstReader(&op) < 0 || isKeptRounded(&op))
        continue;
      for (Operation *user : op.getUsers())
        if (waitedFor.contains(user) ||
            (nodeOf(user) >= 0 && nodeOf(user) != nodeOf(&op) &&
             !ofWeights.contains(nodeOf(user))))
          waitedFor.insert(&op);
      plan::CostNode &node = graph.nodes[nodeOf(&op) < 0 ? firstReader(&op)
                                                         : nodeOf(&op)];
      const bool waits = waitedFor.contains(&op);
      mark(&op, waits ? Part::BackwardInput : Part::BackwardWeight);
      (waits ? node.backwardInputSeconds : node.backwardWeightSeconds) +=
          seconds(&op);
    }
  }

  void addValues(func::FuncOp main) {
    const llvm::DenseSet<Value> active = activeValues(main);
    for (auto [i, op] : llvm::enumerate(nodes))
      for (Value v : op->getResults()) {
        plan::CostValue value{i, placedBytes(v.getType()), 0, {}};
        std::set<size_t> readers;
        for (Operation *user : v.getUsers())
          if (!isBackward(user) && nodeOf(user) > static_cast<int64_t>(i))
            readers.insert(nodeOf(user));
        value.consumers.assign(readers.begin(), readers.end());
        if (trains && active.contains(v))
          value.gradientBytes = value.bytes;
        for (size_t reader : gradientReaders(v, /*early=*/true))
          if (reader >= i)
            value.keptFrom = std::min(value.keptFrom, reader);
        if (!value.consumers.empty())
          graph.values.push_back(value);
      }
  }

  /// The nodes that read a source, through chains of sources.
  void collectReaders(Operation *source, std::set<size_t> &readers) {
    llvm::SetVector<Operation *> sources; // each once, however often it is read
    sources.insert(source);
    for (size_t i = 0; i < sources.size(); ++i)
      for (Operation *user : sources[i]->getUsers()) {
        if (isBackward(user))
          continue;
        if (nodeOf(user) >= 0)
          readers.insert(nodeOf(user));
        else
          sources.insert(user);
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
    const auto rounded = readersOfRounded(main);
    for (auto &[name, users] : readers) {
      auto parameter = parameters.lookup<ParameterOp>(name);
      int64_t bytes = placedBytes(parameter.getType());
      if (auto copies = rounded.find(name); copies != rounded.end()) {
        bytes = llvm::alignTo(bytes, 128); // the copy fills whole lines, too
        graph.rounded.push_back({copyBytes(parameter.getTensorType()),
                                 {copies->second.begin(), copies->second.end()},
                                 graph.weights.size()});
      }
      graph.weights.push_back({name.str(),
                               bytes,
                               {users.begin(), users.end()},
                               parameter.isTrained()});
    }
  }

  double roundedShare() const {
    double weights = 0, copies = 0;
    for (const plan::CostWeight &weight : graph.weights)
      weights += weight.trainable ? static_cast<double>(weight.bytes) : 0;
    for (const plan::CostCopy &copy : graph.rounded)
      copies += static_cast<double>(copy.bytes);
    return weights > 0 ? copies / weights : 0;
  }

  /// Of a rounded copy, as PlanMemory lays it out for products.
  int64_t copyBytes(RankedTensorType type) const {
    type = type.clone(BFloat16Type::get(type.getContext()));
    return llvm::alignTo(
        pipe::placeBytes(type, request.memory.evenRows ? evenPitch(type) : 0),
        64);
  }

  /// The nodes that read a rounded copy, of each weight that has one.
  llvm::MapVector<StringRef, std::set<size_t>>
  readersOfRounded(func::FuncOp main) {
    llvm::MapVector<StringRef, std::set<size_t>> readers;
    if (!request.memory.keepsRounded)
      return readers;
    for (auto cast : main.front().getOps<CastOp>())
      if (WeightOp weight = roundedWeight(cast); weight && !isBackward(cast))
        collectReaders(cast, readers[weight.getParameter()]);
    return readers;
  }

  /// A kept tensor stays on the stage that made it, where that reads it again,
  /// and with what was received on those that received it.
  void addStashes(func::FuncOp main) {
    for (Operation *op : nodes)
      for (Value v : op->getResults()) {
        const std::set<size_t> users = gradientReaders(v);
        if (users.empty())
          continue;
        graph.stashes.push_back({placedBytes(v.getType()),
                                 {users.begin(), users.end()},
                                 static_cast<size_t>(nodeOf(op))});
      }
  }

  /// Gradients that forward computes, in place of what they are made of. That
  /// is as many bytes, and is kept where a stage has only some of the loss.
  void addEarlyStashes(func::FuncOp main) {
    for (Operation &op : main.front())
      for (Value v : op.getResults())
        if (const std::set<size_t> users = gradientReaders(v);
            isEarly(&op) && !users.empty())
          graph.stashes.push_back({placedBytes(v.getType()),
                                   {nodeBehind(*users.begin(), &op)},
                                   *users.begin()});
  }

  /// The first node behind `node` that a gradient that forward computes is of.
  static size_t nodeBehind(size_t node, Operation *early) {
    llvm::SetVector<Operation *> parts;
    parts.insert(early);
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (const int64_t at = nodeOf(parts[i]); at > static_cast<int64_t>(node))
        first = std::min(first, static_cast<size_t>(at));
      for (Value v : parts[i]->getOperands())
        if (Operation *def = v.getDefiningOp(); def && isEarly(def))
          parts.insert(def);
    }
    return first == SIZE_MAX ? node : first;
  }

  /// A stage has a slot of the data that one of its tasks reads.
  void addInputs(func::FuncOp main) {
    for (Value input : main.getArguments()) {
      std::set<size_t> users;
      for (Operation *user : input.getUsers())
        if (nodeOf(user) >= 0)
          users.insert(nodeOf(user));
      if (!users.empty())
        graph.inputs.push_back(
            {placedBytes(input.getType()), {users.begin(), users.end()}});
    }
  }

  /// What a stage computes before it sends its gradients, as SplitStages has
  /// it: what gradients of earlier nodes are made of, not the backward of a
  /// node as a whole.
  llvm::DenseSet<Operation *> madeForInputs(func::FuncOp main) {
    const llvm::DenseSet<int64_t> ofWeights = weightNodes();
    llvm::DenseSet<Operation *> made;
    for (Operation &op : llvm::reverse(main.front())) {
      if (!isBackward(&op))
        continue;
      for (Operation *user : op.getUsers()) {
        const int64_t node = nodeOf(user);
        if (made.contains(user) ||
            (isBackward(user) && node >= 0 && node < nodeOf(&op) &&
             !ofWeights.contains(node)))
          made.insert(&op);
      }
    }
    return made;
  }

  /// What is made for input gradients and read for those of weights.
  void addHandovers(func::FuncOp main) {
    const llvm::DenseSet<Operation *> forInputs = madeForInputs(main);
    for (Operation &op : main.front()) {
      const int64_t maker = nodeOf(&op);
      if (!forInputs.contains(&op) || maker < 0)
        continue;
      for (Value v : op.getResults()) {
        int64_t nearest = INT64_MAX; // of the nodes that read it
        for (Operation *user : v.getUsers()) {
          const int64_t reader = firstReader(user),
                        node = reader < 0 ? maker : reader;
          if (isBackward(user) && !forInputs.contains(user) &&
              std::abs(node - maker) < std::abs(nearest - maker))
            nearest = node;
        }
        if (nearest < INT64_MAX)
          graph.handovers.push_back(
              {static_cast<size_t>(std::min(nearest, maker)),
               static_cast<size_t>(std::max(nearest, maker)),
               placedBytes(v.getType())});
      }
    }
  }

  /// Each use of a weight in a stage sums its own gradients (PlanMemory).
  void addFurtherUses(func::FuncOp main) {
    llvm::MapVector<StringRef, std::map<uint64_t, std::pair<size_t, int64_t>>>
        uses;
    for (Operation &op : main.front())
      if (auto add = dyn_cast<pipe::AccumulateOp>(op);
          add && firstReader(add) >= 0)
        uses[add.getParameter()][add.getUse()] = {
            static_cast<size_t>(firstReader(add)),
            placedBytes(add.getGradient().getType())};
    for (auto &[name, byUse] : uses) {
      std::vector<std::pair<size_t, int64_t>> at;
      for (auto &[use, place] : byUse)
        at.push_back(place);
      llvm::sort(at);
      if (at.size() < 2)
        continue;
      for (plan::CostWeight &weight : graph.weights)
        if (weight.name == name)
          for (auto &[node, bytes] : at)
            weight.uses.push_back(node);
      for (size_t i = 1; i < at.size(); ++i)
        graph.furtherUses.push_back(
            {at[i - 1].first, at[i].first, at[i].second});
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
  const CostRequest &request;
  const bool trains;
  const plan::DeviceModel &device;
  plan::CostGraph &graph;
  Repeats &repeats;
  SmallVector<Operation *> nodes;
  OwningOpRef<ModuleOp> unchosen; ///< before it is chosen what is kept
};

} // namespace

LogicalResult costGraph(ModuleOp module, const CostRequest &request,
                        const plan::DeviceModel &device, plan::CostGraph &graph,
                        Repeats &repeats) {
  if (failed(GraphBuilder(module, request, device, graph, repeats).run()))
    return failure();
  if (!request.keepsAll)
    return success();
  // What is cheap to compute again is fused with what reads it: keeping it
  // takes bytes, and saves no time that the model would know of.
  CostRequest usual = request;
  usual.keepsAll = usual.workspace = false;
  plan::CostGraph times;
  if (failed(GraphBuilder(module, usual, device, times, repeats).run()))
    return failure();
  for (auto [node, of] : llvm::zip_equal(graph.nodes, times.nodes)) {
    node.forwardSeconds = of.forwardSeconds;
    node.backwardInputSeconds = of.backwardInputSeconds;
    node.backwardWeightSeconds = of.backwardWeightSeconds;
  }
  graph.forwardTaskSeconds = times.forwardTaskSeconds;
  graph.backwardTaskSeconds = times.backwardTaskSeconds;
  graph.updateSecondsPerByte = times.updateSecondsPerByte;
  return success();
}

} // namespace pipec
