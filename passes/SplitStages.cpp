//===- SplitStages.cpp - one module a stage, one function a task ----------===//
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

namespace pipec {
#define GEN_PASS_DEF_SPLITSTAGES
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

namespace {

enum class Phase { Forward, Backward, BackwardInput, BackwardWeight };

StringRef taskName(Phase phase) {
  switch (phase) {
  case Phase::Forward:
    return "forward";
  case Phase::Backward:
    return "backward";
  case Phase::BackwardInput:
    return "backward_input";
  case Phase::BackwardWeight:
    return "backward_weight";
  }
  llvm_unreachable("all phases are named");
}

struct Task {
  func::FuncOp func;
  IRMapping map;
};

class Splitter {
public:
  Splitter(func::FuncOp main, ModuleOp module, bool splitBackward)
      : main(main), module(module), splitBackward(splitBackward), sources(main),
        b(main.getContext()) {}

  LogicalResult run() {
    for (Operation &op : main.front().without_terminator()) {
      if (stageOf(&op) < 0)
        return op.emitError("has no stage; run pipe-assign-stages first");
      stages = std::max(stages, stageOf(&op) + 1);
    }
    opsOf.resize(stages);
    weightsOf.resize(stages);
    for (Operation &op : main.front().without_terminator())
      opsOf[stageOf(&op)].push_back(&op);
    findPhases();
    numberEdges();
    findWeights();
    for (int64_t s = 0; s < stages; ++s)
      emitStage(s);
    main.erase();
    return success();
  }

private:
  Phase phaseOf(Operation *op) { return phases.lookup(op); }

  /// What every task that reads it makes for itself. Of the backward pass these
  /// are constants alone: passes that find two of them equal keep one, on
  /// whatever stage that is.
  bool isRepeated(Operation *op) {
    return sources.contains(op) && (!isBackward(op) || isa<ConstantOp>(op));
  }

  /// A gradient op that no other stage waits for can run later, as a W task.
  void findPhases() {
    llvm::DenseSet<Operation *> waitedFor;
    for (Operation &op : llvm::reverse(main.front())) {
      if (!isBackward(&op))
        continue;
      for (Operation *user : op.getUsers())
        if (waitedFor.contains(user) || stageOf(user) != stageOf(&op))
          waitedFor.insert(&op);
    }
    for (Operation &op : main.front()) {
      Phase phase = Phase::Forward;
      if (isBackward(&op))
        phase = !splitBackward            ? Phase::Backward
                : waitedFor.contains(&op) ? Phase::BackwardInput
                                          : Phase::BackwardWeight;
      phases[&op] = phase;
    }
  }

  /// Edges in the order of the values, forward ones first by construction.
  void numberEdges() {
    for (Operation &op : main.front().without_terminator()) {
      if (isRepeated(&op))
        continue;
      for (Value v : op.getResults())
        for (int64_t to : readingStages(v))
          if (to != stageOf(&op))
            edges.insert({{v, to}, static_cast<int64_t>(edges.size())});
    }
  }

  SmallVector<int64_t> readingStages(Value v) {
    SmallVector<int64_t> readers;
    for (Operation *user : v.getUsers())
      if (!isa<func::ReturnOp>(user) &&
          !llvm::is_contained(readers, stageOf(user)))
        readers.push_back(stageOf(user));
    llvm::sort(readers);
    return readers;
  }

  //===--------------------------------------------------------------------===//
  // One stage
  //===--------------------------------------------------------------------===//

  void emitStage(int64_t s) {
    stage = s;
    tasks.clear();
    stashSlot.clear();
    stashes = wstashes = 0;
    b.setInsertionPointToEnd(module.getBody());
    auto stageModule =
        ModuleOp::create(b, main.getLoc(),
                         std::optional<StringRef>("stage" + std::to_string(s)));
    stageModule->setAttr(pipe::kStageAttr, b.getI64IntegerAttr(s));
    b.setInsertionPointToStart(stageModule.getBody());
    copyParameters();
    for (Operation *op : opsOf[s])
      if (!isRepeated(op))
        emitOp(op);
    if (auto ret = cast<func::ReturnOp>(main.front().getTerminator());
        ret.getNumOperands() == 1 &&
        stageOf(ret.getOperand(0).getDefiningOp()) == s)
      emitLoss(ret);
    addEmptyTasks();
    for (auto &[phase, task] : tasks) {
      b.setInsertionPointToEnd(&task.func.front());
      func::ReturnOp::create(b, main.getLoc());
    }
  }

  /// Every schedule calls every task of every stage: a stage without gradients
  /// (it only reads labels) has a backward task that does nothing.
  void addEmptyTasks() {
    taskOf(Phase::Forward);
    if (llvm::none_of(main.front(),
                      [](Operation &op) { return isBackward(&op); }))
      return;
    if (splitBackward) {
      taskOf(Phase::BackwardInput);
      taskOf(Phase::BackwardWeight);
    } else {
      taskOf(Phase::Backward);
    }
  }

  /// The weights that each stage reads.
  void findWeights() {
    for (Operation &op : main.front().without_terminator()) {
      if (auto weight = dyn_cast<WeightOp>(op)) {
        weightsOf[stageOf(&op)].insert(weight.getParameter());
        for (Operation *user : op.getUsers())
          if (stageOf(user) >= 0)
            weightsOf[stageOf(user)].insert(weight.getParameter());
      } else if (auto track = dyn_cast<TrackOp>(op)) {
        weightsOf[stageOf(&op)].insert(track.getParameter());
      }
      // A chain of sources reads its weight on the stage of the chain's reader.
      collectChainWeights(&op, weightsOf[stageOf(&op)]);
    }
  }

  /// The stage of the first piece of a sequence holds the weights of all.
  void copyParameters() {
    const int64_t count = stages / slicesOf(module);
    for (auto parameter : module.getOps<ParameterOp>()) {
      bool read = weightsOf[stage].contains(parameter.getSymName());
      for (int64_t s = stage; stage < count && s < stages; s += count)
        read = read || weightsOf[s].contains(parameter.getSymName());
      if (read)
        b.clone(*parameter);
    }
  }

  void collectChainWeights(Operation *op, llvm::StringSet<> &used) {
    llvm::SetVector<Operation *> chain; // each once, however often it is read
    chain.insert(op);
    for (size_t i = 0; i < chain.size(); ++i)
      for (Value v : chain[i]->getOperands()) {
        Operation *def = v.getDefiningOp();
        if (!def || !sources.contains(def) || isBackward(def))
          continue;
        if (auto weight = dyn_cast<WeightOp>(def))
          used.insert(weight.getParameter());
        chain.insert(def);
      }
  }

  Task &taskOf(Phase phase) {
    auto it = tasks.find(phase);
    if (it != tasks.end())
      return it->second;
    OpBuilder::InsertionGuard guard(b);
    auto stageModule =
        cast<ModuleOp>(module.lookupSymbol("stage" + std::to_string(stage)));
    b.setInsertionPointToEnd(stageModule.getBody());
    auto func = func::FuncOp::create(b, main.getLoc(), taskName(phase),
                                     b.getFunctionType({}, {}));
    func->setAttr(pipe::kTaskAttr, b.getStringAttr(taskName(phase)));
    func.addEntryBlock();
    Task &task = tasks[phase];
    task.func = func;
    return task;
  }

  void emitOp(Operation *op) {
    Task &task = taskOf(phaseOf(op));
    IRMapping operands;
    for (Value v : op->getOperands())
      operands.map(v, valueIn(task, phaseOf(op), v, op->getLoc()));
    b.setInsertionPointToEnd(&task.func.front());
    Operation *copy = b.clone(*op, operands);
    removeMarks(copy);
    for (auto [from, to] : llvm::zip(op->getResults(), copy->getResults())) {
      task.map.map(from, to);
      emitSends(from, to);
    }
  }

  void emitSends(Value original, Value here) {
    for (int64_t to : readingStages(original))
      if (to != stage)
        pipe::SendOp::create(b, here.getLoc(), here,
                             edges.lookup({original, to}), to);
  }

  void emitLoss(func::ReturnOp ret) {
    Task &task = taskOf(Phase::Forward);
    Value loss = valueIn(task, Phase::Forward, ret.getOperand(0), ret.getLoc());
    b.setInsertionPointToEnd(&task.func.front());
    pipe::LossOp::create(b, ret.getLoc(), loss);
  }

  /// `v` inside a task: made there, or brought in.
  Value valueIn(Task &task, Phase phase, Value v, Location loc) {
    if (Value here = task.map.lookupOrNull(v))
      return here;
    Operation *def = v.getDefiningOp();
    Value here;
    if (!def) {
      b.setInsertionPointToEnd(&task.func.front());
      auto name = main.getArgAttrOfType<StringAttr>(
          cast<BlockArgument>(v).getArgNumber(), "nn.name");
      here = pipe::InputOp::create(b, loc, v.getType(), name);
    } else if (isRepeated(def)) {
      here = repeatSource(task, phase, cast<OpResult>(v));
    } else if (stageOf(def) != stage) {
      b.setInsertionPointToEnd(&task.func.front());
      here = pipe::RecvOp::create(b, loc, v.getType(), edges.lookup({v, stage}),
                                  stageOf(def));
    } else {
      here = unstash(task, v, loc);
    }
    task.map.map(v, here);
    return here;
  }

  static void removeMarks(Operation *op) {
    for (StringRef mark : {kOpStage, kOpPhase, kOpUse, kOpJoins})
      op->removeAttr(mark);
  }

  Value repeatSource(Task &task, Phase phase, OpResult v) {
    Operation *def = v.getOwner();
    IRMapping operands;
    for (Value x : def->getOperands())
      operands.map(x, valueIn(task, phase, x, def->getLoc()));
    b.setInsertionPointToEnd(&task.func.front());
    Operation *copy = b.clone(*def, operands);
    removeMarks(copy);
    return copy->getResult(v.getResultNumber());
  }

  /// Keeps `v` at the end of the task that makes it, once a kind of slot.
  Value unstash(Task &task, Value v, Location loc) {
    bool fromForward = phaseOf(v.getDefiningOp()) == Phase::Forward;
    StringRef kind = fromForward ? "stash" : "wstash";
    auto [it, isNew] = stashSlot.insert({v, 0});
    if (isNew) {
      it->second = fromForward ? stashes++ : wstashes++;
      Task &maker = taskOf(phaseOf(v.getDefiningOp()));
      b.setInsertionPointToEnd(&maker.func.front());
      pipe::StashOp::create(b, v.getLoc(), maker.map.lookup(v), kind,
                            it->second);
    }
    b.setInsertionPointToEnd(&task.func.front());
    return pipe::UnstashOp::create(b, loc, v.getType(), kind, it->second);
  }

  func::FuncOp main;
  ModuleOp module;
  bool splitBackward;
  Sources sources;
  OpBuilder b;
  int64_t stages = 0, stage = 0, stashes = 0, wstashes = 0;
  std::vector<SmallVector<Operation *>> opsOf; ///< each stage's, in order
  std::vector<llvm::StringSet<>> weightsOf;    ///< that each stage reads
  llvm::DenseMap<Operation *, Phase> phases;
  llvm::MapVector<std::pair<Value, int64_t>, int64_t> edges;
  std::map<Phase, Task> tasks;
  llvm::DenseMap<Value, int64_t> stashSlot;
};

struct SplitStagesPass : public pipec::impl::SplitStagesBase<SplitStagesPass> {
  using SplitStagesBase::SplitStagesBase;
  void runOnOperation() override {
    func::FuncOp main = mainFunction(getOperation());
    if (!main || failed(Splitter(main, getOperation(), splitBackward).run()))
      signalPassFailure();
  }
};

} // namespace
