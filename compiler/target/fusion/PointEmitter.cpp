//===- PointEmitter.cpp - the values of a kernel at a point ---------------===//
#include "compiler/target/fusion/PointEmitter.h"
#include "compiler/target/fusion/EmitElementwise.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;
using nn::tensorType;

//===----------------------------------------------------------------------===//
// Set-up
//===----------------------------------------------------------------------===//

PointEmitter::PointEmitter(MLIRContext *context, const KernelPlan &plan,
                           const Machine &machine)
    : plan(plan), machine(machine), b(UnknownLoc::get(context), context),
      math(b, machine), pointerType(LLVM::LLVMPointerType::get(context)),
      rowLoops(plan.outer.size() + plan.rows.size()),
      columnOps(plan.nest.columnReductions), phases(*plan.group) {}

int PointEmitter::argument(const Placement &at, Type element) {
  KernelArgument wanted{at.buffer, at.offset * elementBytes(element)};
  auto *it = llvm::find(arguments, wanted);
  if (it != arguments.end())
    return it - arguments.begin();
  arguments.push_back(wanted);
  return arguments.size() - 1;
}

void PointEmitter::collectAccesses() {
  auto access = [&](Value value, const Placement &at, Strides strides) {
    Access access;
    access.strides = strides;
    access.element = tensorType(value).getElementType();
    if (at.buffer >= 0)
      access.argument = argument(at, access.element);
    return access;
  };
  for (const auto &[value, leaf] : plan.leaves)
    leaves[value] =
        access(value, leaf.place, plan.leafStrides.find(value)->second);
  for (auto [target, strides] :
       llvm::zip_equal(plan.targets, plan.targetStrides)) {
    bool contiguous = strides.back() == 1 || plan.lane == 1;
    targets.push_back(access(target.value, target.place, strides));
    if (!target.accumulate && contiguous && !isRowTarget(targets.size() - 1))
      stored.insert({target.value, targets.size() - 1});
  }
  for (auto [spill, strides] :
       llvm::zip_equal(plan.spills, plan.spillStrides)) {
    stored.insert({spill.value, targets.size()});
    targets.push_back(access(spill.value, spill.place, strides));
  }
  for (auto [op, place] : llvm::zip_equal(columnOps, plan.partials))
    partials.push_back(access(op.getY(), place, {}));
  // Partial sums are kept as they are accumulated.
  for (Access &partial : partials)
    partial.element = accumulatorType(partial.element);
  for (auto &[value, leaf] : leaves)
    if (plan.leaves.find(value)->second.kind == Leaf::Partials)
      leaf.element = accumulatorType(leaf.element);
}

Value PointEmitter::valueOf(size_t target) const {
  size_t n = plan.targets.size();
  return target < n ? plan.targets[target].value
                    : plan.spills[target - n].value;
}

bool PointEmitter::isRowTarget(size_t target) const {
  return (!plan.walk.empty() || plan.lane != 1) &&
         levelOf(targets[target].strides) < Level::Point;
}

int64_t fusion::product(ArrayRef<int64_t> sizes) {
  int64_t n = 1;
  for (int64_t size : sizes)
    n *= size;
  return n;
}
int64_t PointEmitter::outerCount() const { return product(plan.outer); }
int64_t PointEmitter::columns() const { return product(plan.walk) * plan.lane; }

void PointEmitter::countPhases() {
  phaseCount = 1;
  for (nn::ReduceOp op : plan.nest.rowReductions)
    phaseCount = std::max(phaseCount, phaseOf(op.getX()) + 1);
  for (nn::ReduceOp op : columnOps)
    phaseCount = std::max(phaseCount, phaseOf(op.getX()) + 1);
  for (size_t i = 0; i < targets.size(); ++i)
    if (!isRowTarget(i))
      phaseCount = std::max(phaseCount, phaseOf(valueOf(i)) + 1);
}

Level PointEmitter::levelOf(Strides strides) const {
  auto moves = [](Strides some) {
    return llvm::any_of(some, [](int64_t s) { return s != 0; });
  };
  if (strides.back() != 0)
    return Level::Lane;
  if (moves(strides.drop_front(rowLoops)))
    return Level::Point;
  return moves(strides.take_front(rowLoops)) ? Level::Row : Level::Entry;
}

Level PointEmitter::levelOf(Value value) {
  auto known = levels.find(value);
  if (known != levels.end())
    return known->second;
  Level level = Level::Entry;
  Operation *op = value.getDefiningOp();
  if (auto it = leaves.find(value); it != leaves.end())
    level = levelOf(it->second.strides);
  else if (plan.group->ops.contains(op) && isa<nn::ReduceOp>(op))
    level = Level::Row;
  else if (!isImmediate(value))
    for (Value operand : op->getOperands())
      level = std::max(level, levelOf(operand));
  return levels[value] = level;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// sum(index * stride); null when nothing moves. Outside their loops indices
/// are missing, and their strides zero.
Value PointEmitter::offset(ArrayRef<Value> indices, Strides strides) {
  Value sum;
  for (size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] == 0)
      continue;
    Value term = times(indices[i], strides[i]);
    sum = sum ? add(sum, term) : term;
  }
  return sum;
}

Value PointEmitter::advance(Value pointer, Type element, Value elements) {
  if (!elements)
    return pointer;
  return LLVM::GEPOp::create(b, pointerType, memoryType(element), pointer,
                             ArrayRef<LLVM::GEPArg>{elements});
}

Value PointEmitter::spread(Value value) {
  if (width == 1 || isa<VectorType>(value.getType()))
    return value;
  return vector::BroadcastOp::create(b, laneType(value.getType()), value);
}

Value PointEmitter::zeros(Type type) {
  return isa<FloatType>(getElementTypeOrSelf(type)) ? math.constant(type, 0)
                                                    : math.integer(type, 0);
}

Value PointEmitter::fromMemory(Value value, Type element) {
  if (element.isBF16())
    return arith::BitcastOp::create(b, withElement(value.getType(), element),
                                    value);
  if (!element.isInteger(1))
    return value;
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, value,
                               math.integer(value.getType(), 0));
}

Value PointEmitter::toMemory(Value value) {
  if (getElementTypeOrSelf(value).isBF16())
    return arith::BitcastOp::create(
        b, withElement(value.getType(), b.getI16Type()), value);
  if (!getElementTypeOrSelf(value.getType()).isInteger(1))
    return value;
  return arith::ExtUIOp::create(b, withElement(value.getType(), b.getI8Type()),
                                value);
}

/// Where the first lane of the current point is.
Value PointEmitter::pointerAt(const Access &access) {
  auto inner = access.strides.drop_front(rowLoops);
  Value pointer = advance(access.rowPointer, access.element,
                          offset(walkIndices, inner.drop_back()));
  if (inner.back() == 0)
    return pointer;
  return advance(pointer, access.element, times(laneIndex, inner.back()));
}

/// The index in each of `sizes` of element `number` in row-major order.
SmallVector<Value> PointEmitter::indicesOf(Value number,
                                           ArrayRef<int64_t> sizes) {
  SmallVector<Value> reversed;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (d == 0) {
      reversed.push_back(number);
      break;
    }
    Value size = integer(std::max<int64_t>(sizes[d], 1));
    reversed.push_back(arith::RemUIOp::create(b, number, size));
    number = arith::DivUIOp::create(b, number, size);
  }
  return SmallVector<Value>(reversed.rbegin(), reversed.rend());
}

void PointEmitter::placeRow() {
  auto place = [&](Access &access) {
    access.rowPointer =
        advance(pointers[access.argument], access.element,
                offset(rowIndices, access.strides.take_front(rowLoops)));
  };
  for (auto &[value, access] : leaves)
    if (plan.leaves.find(value)->second.kind != Leaf::Index)
      place(access);
  for (Access &access : targets)
    place(access);
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// The value of an nn tensor at the current point: a scalar when all lanes
/// agree, otherwise a vector.
Value PointEmitter::evaluate(Value value) {
  Level level = levelOf(value);
  auto &known = level == Level::Entry ? atEntry
                : level == Level::Row ? atRow
                                      : atPoint;
  if (auto it = known.find(value); it != known.end())
    return it->second;
  OpBuilder::InsertionGuard guard(b);
  if (level == Level::Entry && entryAnchor)
    b.setInsertionPoint(entryAnchor);
  else if (level == Level::Row && rowAnchor)
    b.setInsertionPoint(rowAnchor);
  auto slot = stored.find(value);
  bool inMemory =
      level == Level::Lane && slot != stored.end() && phaseOf(value) < phase;
  Value result = inMemory ? loadAt(targets[slot->second]) : compute(value);
  known[value] = result;
  return result;
}

Value PointEmitter::compute(Value value) {
  Operation *op = value.getDefiningOp();
  if (leaves.count(value))
    return readLeaf(value);
  if (auto constant = dyn_cast<nn::ConstantOp>(op))
    return arith::ConstantOp::create(
        b, cast<TypedAttr>(cast<SplatElementsAttr>(constant.getValue())
                               .getSplatValue<Attribute>()));
  if (!plan.group->ops.contains(op))
    return evaluate(op->getOperand(0)); // a view inside the group
  return computeOp(op);
}

Value PointEmitter::computeOp(Operation *op) {
  if (auto compare = dyn_cast<nn::CompareOp>(op))
    if (Value narrow = compareWithIndex(compare))
      return narrow;
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(evaluate(operand));
  Value result =
      unsupported ? Value() : emitElementwise(b, machine, op, operands);
  if (result)
    return result;
  unsupported = unsupported ? unsupported : op;
  return operands.front();
}

/// An i64 number against the index of each lane: indices fit in i32, and a
/// number that does not lies beyond all of them.
Value PointEmitter::compareWithIndex(nn::CompareOp op) {
  auto isIndex = [&](Value value) {
    auto leaf = plan.leaves.find(value);
    return leaf != plan.leaves.end() && leaf->second.kind == Leaf::Index &&
           levelOf(value) == Level::Lane;
  };
  bool first = isIndex(op.getA());
  Value index = first ? op.getA() : op.getB();
  Value number = first ? op.getB() : op.getA();
  if (width == 1 || !tensorType(index).getElementType().isInteger(64) ||
      !isIndex(index) || levelOf(number) == Level::Lane)
    return {};
  Value wide = evaluate(number);
  Value low = arith::MaxSIOp::create(b, wide, integer(-1));
  Value clamped = arith::MinSIOp::create(
      b, low, integer(std::numeric_limits<int32_t>::max()));
  Value narrow = spread(arith::TruncIOp::create(b, b.getI32Type(), clamped));
  Value lanes = indexAt(leaves[index], b.getI32Type());
  return emitElementwise(b, machine, op,
                         first ? ArrayRef<Value>{lanes, narrow}
                               : ArrayRef<Value>{narrow, lanes});
}

void PointEmitter::write(size_t target) {
  Value value = evaluate(valueOf(target));
  if (target < plan.targets.size() && plan.targets[target].accumulate) {
    Value old = loadAt(targets[target]);
    if (isa<VectorType>(old.getType()))
      value = spread(value);
    value = emitCombine(b, machine, "sum", widened(b, machine, old),
                        widened(b, machine, value));
    value = narrowed(b, machine, value, targets[target].element);
  }
  storeAt(targets[target], value);
}

Value PointEmitter::readLeaf(Value value) {
  const Leaf &leaf = plan.leaves.find(value)->second;
  const Access &access = leaves[value];
  switch (leaf.kind) {
  case Leaf::Memory:
    return readMemory(value, access);
  case Leaf::Index:
    return indexAt(access, access.element);
  case Leaf::Partials:
    return sumPartials(cast<nn::ReduceOp>(value.getDefiningOp()), leaf, access);
  }
  llvm_unreachable("a kind of leaf");
}

Value PointEmitter::sumPartials(nn::ReduceOp op, const Leaf &leaf,
                                const Access &access) {
  return narrowed(b, machine, addPartials(op, leaf, access, integer(0), 1),
                  tensorType(op.getY()).getElementType());
}

Value PointEmitter::addPartials(nn::ReduceOp op, const Leaf &leaf,
                                const Access &access, Value first, int64_t step,
                                int64_t atOnce) {
  bool lanes = access.strides.back() != 0;
  Value sum = emitIdentity(b, op.getKind(),
                           lanes ? laneType(access.element) : access.element);
  auto addFrom = [&](Value begin, Value end, int64_t count) {
    auto loop = scf::ForOp::create(b, begin, end, integer(step * count), sum);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> read;
    for (int64_t i = 0; i < count; ++i) {
      Value at = loop.getInductionVar();
      if (i)
        at = add(at, integer(i * step));
      read.push_back(loadAt(access, times(at, leaf.partialStride)));
    }
    Value next = loop.getRegionIterArgs().front();
    for (Value one : read)
      next = emitCombine(b, machine, op.getKind(), next, one);
    scf::YieldOp::create(b, next);
    sum = loop.getResult(0);
  };
  const int64_t together =
      atOnce > 1 ? leaf.partials / (step * atOnce) * step * atOnce : 0;
  Value rest = first;
  if (together) {
    rest = add(first, integer(together));
    addFrom(first, rest, atOnce);
  }
  if (together < leaf.partials)
    addFrom(rest, integer(leaf.partials), 1);
  return sum;
}

/// The index that an iota names, as `element`. Indices below 2^31 are exact in
/// i32, and converted faster from there.
Value PointEmitter::indexAt(const Access &access, Type element) {
  SmallVector<Value> indices(rowIndices);
  indices.append(walkIndices);
  Value sum = offset(indices, access.strides.drop_back());
  if (!sum)
    sum = integer(0);
  int64_t stride = access.strides.back();
  if (stride != 0)
    sum = add(sum, times(laneIndex, stride));
  sum = arith::TruncIOp::create(b, b.getI32Type(), sum);
  if (stride != 0 && width > 1) {
    SmallVector<int32_t> steps;
    for (int64_t i = 0; i < width; ++i)
      steps.push_back(i * stride);
    auto type = VectorType::get({width}, b.getI32Type());
    Value lane = arith::ConstantOp::create(
        b, DenseElementsAttr::get(type, ArrayRef<int32_t>(steps)));
    sum = arith::AddIOp::create(b, spread(sum), lane);
  }
  Type to = withElement(sum.getType(), element);
  if (isa<FloatType>(element))
    return arith::SIToFPOp::create(b, to, sum);
  unsigned bits = element.getIntOrFloatBitWidth();
  if (bits > 32)
    return arith::ExtSIOp::create(b, to, sum);
  return bits == 32 ? sum : Value(arith::TruncIOp::create(b, to, sum));
}
