//===- Spill.cpp - what a later phase reads instead of computing ----------===//
//
// A row of a kernel is walked once a phase. What an earlier phase computed at a
// point is gone; cheap values are computed again, dear ones (exponentials and
// the like) are kept in memory, if possible where a result will be written.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/fusion/Plan.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;

/// Whether one element costs more than writing and reading it.
static bool isDear(Operation *op) {
  return isa<nn::ExpOp, nn::LogOp, nn::Log1pOp, nn::TanhOp, nn::ErfOp,
             nn::SigmoidOp, nn::SinOp, nn::CosOp, nn::PowOp, nn::ModOp>(op);
}

namespace {
class SpillFinder {
public:
  SpillFinder(const KernelPlan &plan)
      : plan(plan), group(*plan.group), phases(group) {}

  SmallVector<Spill> run() {
    for (nn::ReduceOp op : plan.nest.rowReductions)
      need(op.getX(), phases.of(op.getX()));
    for (nn::ReduceOp op : plan.nest.columnReductions)
      need(op.getX(), phases.of(op.getX()));
    for (const Target &target : plan.targets)
      if (isPoint(target.value))
        need(target.value, phases.of(target.value));
    SmallVector<Spill> spills;
    for (auto &[value, phase] : lastUse)
      spills.push_back({value, borrow(value, phase)});
    return spills;
  }

private:
  bool isPoint(Value value) const {
    auto map = group.maps.find(value);
    return map != group.maps.end() &&
           flatten(map->second).size() == group.extents.size();
  }
  bool isTarget(Value value) const {
    return llvm::any_of(plan.targets, [&](const Target &target) {
      return target.value == value && !target.accumulate;
    });
  }

  /// Walks what the value is computed from at `phase`.
  void need(Value value, int phase) {
    Operation *op = value.getDefiningOp();
    if (!group.computes(value) || !isPoint(value) ||
        !seen.insert({value, phase}).second)
      return;
    if (phases.of(value) < phase && group.ops.contains(op)) {
      if (isTarget(value))
        return;
      if (isDearChain(value)) {
        int &last = lastUse[value];
        last = std::max(last, phase);
        return;
      }
    }
    if (group.ops.contains(op) && isa<nn::ReduceOp>(op))
      return;
    for (Value operand : op->getOperands())
      need(operand, phase);
  }

  /// Whether computing the value again costs more than keeping it. Answers are
  /// kept: chains in which values are used twice have paths without number.
  bool isDearChain(Value value) {
    if (!group.computes(value) || !isPoint(value))
      return false;
    if (auto known = dear.find(value); known != dear.end())
      return known->second;
    const bool answer = computesDearly(value.getDefiningOp());
    return dear[value] = answer;
  }
  bool computesDearly(Operation *op) {
    if (group.ops.contains(op)) {
      if (isa<nn::ReduceOp>(op))
        return false;
      if (isDear(op))
        return true;
    }
    return llvm::any_of(op->getOperands(), [&](Value operand) {
      return !isTarget(operand) && isDearChain(operand);
    });
  }

  /// Whether an element of `of` is computed from that of the value.
  bool isPartOf(Value value, Value of, llvm::DenseSet<Value> &tried) const {
    if (value == of)
      return true;
    return group.computes(of) && isPoint(of) && tried.insert(of).second &&
           llvm::any_of(of.getDefiningOp()->getOperands(),
                        [&](Value x) { return isPartOf(value, x, tried); });
  }
  bool isPartOf(Value value, Value of) const {
    llvm::DenseSet<Value> tried;
    return isPartOf(value, of, tried);
  }

  /// Whether something else of the phase in which a target is written could
  /// read the value after that.
  bool isReadBeside(Value value, size_t target, int phase) {
    for (auto [i, other] : llvm::enumerate(plan.targets))
      if (i != target && isPoint(other.value) &&
          phases.of(other.value) == phase && isPartOf(value, other.value))
        return true;
    for (const auto &reductions :
         {plan.nest.rowReductions, plan.nest.columnReductions})
      for (nn::ReduceOp op : reductions)
        if (phases.of(op.getX()) == phase && isPartOf(value, op.getX()))
          return true;
    return false;
  }

  /// A target that is written when the value is last used, or later.
  int borrow(Value value, int lastPhase) {
    for (auto [i, target] : llvm::enumerate(plan.targets)) {
      if (target.accumulate || !isPoint(target.value) || borrowed.contains(i) ||
          target.value.getType() != value.getType() ||
          group.maps.find(target.value)->second !=
              group.maps.find(value)->second ||
          phases.of(target.value) < lastPhase ||
          (phases.of(target.value) == lastPhase &&
           isReadBeside(value, i, lastPhase)))
        continue;
      borrowed.insert(i);
      return i;
    }
    return -1;
  }

  const KernelPlan &plan;
  const Group &group;
  Phases phases;
  llvm::MapVector<Value, int> lastUse;
  llvm::DenseSet<std::pair<Value, int>> seen;
  llvm::DenseMap<Value, bool> dear;
  llvm::SmallDenseSet<size_t> borrowed;
};
} // namespace

SmallVector<Spill> fusion::chooseSpills(const KernelPlan &plan) {
  return SpillFinder(plan).run();
}
