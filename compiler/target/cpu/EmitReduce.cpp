//===- EmitReduce.cpp - reductions over the points of a row ---------------===//
//
// Every lane accumulates its own elements in order; at the end of the row the
// halves of the lanes are combined until one is left. The order depends on the
// reduced shape alone.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cpu/KernelEmitter.h"
#include "compiler/target/fusion/EmitElementwise.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cpu;
using namespace pipec::fusion;
using nn::tensorType;

/// Max and min of floats carry a second value, whether a NaN was met: the
/// comparison alone is one instruction, and lets NaN pass.
bool KernelEmitter::tracksNan(nn::ReduceOp op) const {
  return width > 1 && (op.getKind() == "max" || op.getKind() == "min") &&
         nn::isFloat(op.getX());
}

/// Picks the reductions that this phase completes; those that need no walk are
/// emitted at once.
void KernelEmitter::startReductions() {
  reductions.clear();
  for (nn::ReduceOp op : plan.nest.rowReductions) {
    if (phaseOf(op.getX()) != phase)
      continue;
    Value picked, index;
    if (isPick(op, picked, index))
      atRow[op.getY()] = pick(op, picked, index);
    else
      reductions.push_back(op);
  }
}

Running KernelEmitter::identities() {
  Running running;
  for (nn::ReduceOp op : reductions) {
    Type type =
        laneType(accumulatorType(tensorType(op.getX()).getElementType()));
    running.push_back(emitIdentity(b, op.getKind(), type));
    if (tracksNan(op))
      running.push_back(
          math.integer(VectorType::get({width / 2}, b.getI1Type()), 0));
  }
  return running;
}

/// The larger (smaller) of x and y; y when one is NaN.
Value KernelEmitter::keepLarger(nn::ReduceOp op, Value x, Value y) {
  auto predicate = op.getKind() == "max" ? arith::CmpFPredicate::OGT
                                         : arith::CmpFPredicate::OLT;
  Value condition = arith::CmpFOp::create(b, predicate, x, y);
  return arith::SelectOp::create(b, condition, x, y);
}

static Value half(ImplicitLocOpBuilder &b, Value lanes, bool high) {
  int64_t n = cast<VectorType>(lanes.getType()).getNumElements() / 2;
  return vector::ExtractStridedSliceOp::create(b, lanes, high ? n : 0, n, 1);
}

void KernelEmitter::accumulate(Running &running) {
  Value *next = running.begin();
  for (nn::ReduceOp op : reductions) {
    Value x = widened(b, machine, spread(evaluate(op.getX())));
    Value &sum = *next++;
    if (!tracksNan(op)) {
      Value combined = emitCombine(b, machine, op.getKind(), sum, x);
      sum = mask ? arith::SelectOp::create(b, mask, combined, sum) : combined;
      continue;
    }
    if (mask)
      x = arith::SelectOp::create(b, mask, x,
                                  emitIdentity(b, op.getKind(), x.getType()));
    sum = keepLarger(op, sum, x);
    Value nan = arith::CmpFOp::create(b, arith::CmpFPredicate::UNO,
                                      half(b, x, false), half(b, x, true));
    Value &seen = *next++;
    seen = arith::OrIOp::create(b, seen, nan);
  }
}

void KernelEmitter::finishReductions(const Running &running) {
  const Value *next = running.begin();
  for (nn::ReduceOp op : reductions) {
    Value lanes = *next++;
    Type element = tensorType(op.getY()).getElementType();
    if (!tracksNan(op)) {
      atRow[op.getY()] =
          narrowed(b, machine, fold(op.getKind(), lanes), element);
      continue;
    }
    while (isa<VectorType>(lanes.getType())) {
      Value low = half(b, lanes, false), high = half(b, lanes, true);
      lanes = keepLarger(op, low, high);
      if (cast<VectorType>(lanes.getType()).getNumElements() == 1)
        lanes = vector::ExtractOp::create(b, lanes, 0);
    }
    Value seen = *next++;
    Value any = vector::ReductionOp::create(b, vector::CombiningKind::OR, seen);
    Value result = arith::SelectOp::create(
        b, any, math.constant(lanes.getType(), NAN), lanes);
    atRow[op.getY()] = narrowed(b, machine, result, element);
  }
}

Value KernelEmitter::fold(StringRef kind, Value lanes) {
  auto type = dyn_cast<VectorType>(lanes.getType());
  if (!type)
    return lanes;
  for (int64_t n = type.getNumElements(); n > 1; n /= 2) {
    Value low = half(b, lanes, false), high = half(b, lanes, true);
    lanes = emitCombine(b, machine, kind, low, high);
  }
  return vector::ExtractOp::create(b, lanes, 0);
}

//===----------------------------------------------------------------------===//
// A sum that is one element
//===----------------------------------------------------------------------===//

/// sum(index == number ? x : 0): the element of x at `number`, as in the loss
/// of a class. All other terms add zero.
bool KernelEmitter::isPick(nn::ReduceOp op, Value &picked, Value &index) {
  auto resolved = [&](Value value) {
    while (plan.group->views.contains(value))
      value = value.getDefiningOp()->getOperand(0);
    return value;
  };
  auto computed = [&](Value value) -> Operation * {
    Operation *def = resolved(value).getDefiningOp();
    return plan.group->ops.contains(def) ? def : nullptr;
  };
  auto select = dyn_cast_or_null<nn::SelectOp>(computed(op.getX()));
  if (op.getKind() != "sum" || !plan.walk.empty() || width == 1 || !select ||
      !nn::isFloat(select.getY()))
    return false;
  auto compare =
      dyn_cast_or_null<nn::CompareOp>(computed(select.getCondition()));
  auto zero = select.getB().getDefiningOp<nn::ConstantOp>();
  if (!compare || compare.getPredicate() != "eq" || !zero ||
      !isSplat(select.getB()) ||
      !cast<SplatElementsAttr>(zero.getValue())
           .getSplatValue<APFloat>()
           .isPosZero())
    return false;
  auto isLaneNumber = [&](Value value) {
    auto leaf = plan.leaves.find(value);
    if (leaf == plan.leaves.end() || leaf->second.kind != Leaf::Index)
      return false;
    Strides strides = leaves[value].strides;
    return strides.back() == 1 &&
           llvm::all_of(strides.drop_back(), [](int64_t s) { return s == 0; });
  };
  bool first = isLaneNumber(compare.getA());
  index = first ? compare.getB() : compare.getA();
  if (!isLaneNumber(first ? compare.getA() : compare.getB()) ||
      levelOf(index) > Level::Row || phaseOf(index) > phase ||
      !isa<IntegerType>(tensorType(index).getElementType()))
    return false;
  picked = select.getA();
  return true;
}

Value KernelEmitter::pick(nn::ReduceOp op, Value picked, Value index) {
  Value number = evaluate(index);
  if (number.getType() != b.getI64Type())
    number = arith::ExtSIOp::create(b, b.getI64Type(), number);
  Value inside = arith::AndIOp::create(
      b,
      arith::CmpIOp::create(b, arith::CmpIPredicate::sge, number, integer(0)),
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, number,
                            integer(plan.lane)));
  // One element, as a scalar.
  int64_t lanes = std::exchange(width, 1);
  laneIndex = arith::SelectOp::create(b, inside, number, integer(0));
  atPoint.clear();
  Value x = evaluate(picked);
  atPoint.clear();
  width = lanes;
  Value zero = zeros(x.getType());
  Value chosen = arith::SelectOp::create(b, inside, x, zero);
  Value sum = emitCombine(b, machine, op.getKind(), widened(b, machine, zero),
                          widened(b, machine, chosen));
  return narrowed(b, machine, sum, getElementTypeOrSelf(x));
}
