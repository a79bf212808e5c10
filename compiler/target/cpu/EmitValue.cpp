//===- EmitValue.cpp - values at a point of a kernel ----------------------===//
#include "compiler/target/cpu/EmitElementwise.h"
#include "compiler/target/cpu/KernelEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cpu;
using nn::tensorType;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// sum(index * stride); null when nothing moves. Outside their loops indices
/// are missing, and their strides zero.
Value KernelEmitter::offset(ArrayRef<Value> indices, Strides strides) {
  Value sum;
  for (size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] == 0)
      continue;
    Value term = times(indices[i], strides[i]);
    sum = sum ? add(sum, term) : term;
  }
  return sum;
}

Value KernelEmitter::advance(Value pointer, Type element, Value elements) {
  if (!elements)
    return pointer;
  return LLVM::GEPOp::create(b, pointerType, memoryType(element), pointer,
                             ArrayRef<LLVM::GEPArg>{elements});
}

Value KernelEmitter::spread(Value value) {
  if (width == 1 || isa<VectorType>(value.getType()))
    return value;
  return vector::BroadcastOp::create(b, laneType(value.getType()), value);
}

Value KernelEmitter::zeros(Type type) {
  return isa<FloatType>(getElementTypeOrSelf(type)) ? math.constant(type, 0)
                                                    : math.integer(type, 0);
}

Value KernelEmitter::fromMemory(Value value, Type element) {
  if (!element.isInteger(1))
    return value;
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, value,
                               math.integer(value.getType(), 0));
}

Value KernelEmitter::toMemory(Value value) {
  if (!getElementTypeOrSelf(value.getType()).isInteger(1))
    return value;
  return arith::ExtUIOp::create(b, withElement(value.getType(), b.getI8Type()),
                                value);
}

/// Pointers of the lanes of a strided access.
Value KernelEmitter::lanePointers(Value pointer, Type element, int64_t stride) {
  SmallVector<int64_t> steps;
  for (int64_t i = 0; i < width; ++i)
    steps.push_back(i * stride);
  auto type = VectorType::get({width}, b.getI64Type());
  Value offsets = arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, ArrayRef<int64_t>(steps)));
  return LLVM::GEPOp::create(b, VectorType::get({width}, pointerType),
                             memoryType(element), pointer,
                             ArrayRef<LLVM::GEPArg>{offsets});
}

/// Where the first lane of the current point is.
Value KernelEmitter::pointerAt(const Access &access) {
  auto inner = access.strides.drop_front(rowLoops);
  Value pointer = advance(access.rowPointer, access.element,
                          offset(walkIndices, inner.drop_back()));
  if (inner.back() == 0)
    return pointer;
  return advance(pointer, access.element, times(laneIndex, inner.back()));
}

/// The elements at the current point; `extra` is added to the address.
Value KernelEmitter::loadAt(const Access &access, Value extra) {
  int64_t stride = access.strides.back();
  Value pointer = advance(pointerAt(access), access.element, extra);
  Type memory = memoryType(access.element), type = laneType(memory);
  unsigned alignment = elementBytes(access.element);
  Value loaded;
  if (stride == 0 || width == 1)
    loaded = LLVM::LoadOp::create(b, memory, pointer, alignment);
  else if (stride != 1)
    loaded = LLVM::masked_gather::create(
        b, type, lanePointers(pointer, access.element, stride),
        mask ? mask : allLanes(), ValueRange{zeros(type)},
        b.getI32IntegerAttr(alignment));
  else if (mask)
    loaded =
        LLVM::MaskedLoadOp::create(b, type, pointer, mask, zeros(type),
                                   b.getI32IntegerAttr(alignment), UnitAttr());
  else
    loaded = LLVM::LoadOp::create(b, type, pointer, alignment);
  return fromMemory(loaded, access.element);
}

void KernelEmitter::storeAt(const Access &access, Value value) {
  int64_t stride = access.strides.back();
  Value pointer = pointerAt(access);
  unsigned alignment = elementBytes(access.element);
  value = toMemory(stride == 0 ? value : spread(value));
  if (stride == 0 || width == 1)
    LLVM::StoreOp::create(b, value, pointer, alignment);
  else if (stride != 1)
    LLVM::masked_scatter::create(
        b, value, lanePointers(pointer, access.element, stride),
        mask ? mask : allLanes(), b.getI32IntegerAttr(alignment));
  else if (mask)
    LLVM::MaskedStoreOp::create(b, value, pointer, mask,
                                b.getI32IntegerAttr(alignment));
  else
    LLVM::StoreOp::create(b, value, pointer, alignment);
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// The value of an nn tensor at the current point: a scalar when all lanes
/// agree, otherwise a vector.
Value KernelEmitter::evaluate(Value value) {
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

Value KernelEmitter::compute(Value value) {
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

Value KernelEmitter::computeOp(Operation *op) {
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
Value KernelEmitter::compareWithIndex(nn::CompareOp op) {
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

Value KernelEmitter::readLeaf(Value value) {
  const Leaf &leaf = plan.leaves.find(value)->second;
  const Access &access = leaves[value];
  switch (leaf.kind) {
  case Leaf::Memory:
    return loadAt(access);
  case Leaf::Index:
    return indexAt(access, access.element);
  case Leaf::Partials:
    return sumPartials(cast<nn::ReduceOp>(value.getDefiningOp()), leaf, access);
  }
  llvm_unreachable("a kind of leaf");
}

/// The partial column sums in order.
Value KernelEmitter::sumPartials(nn::ReduceOp op, const Leaf &leaf,
                                 const Access &access) {
  bool lanes = access.strides.back() != 0;
  Value none = emitIdentity(b, op.getKind(),
                            lanes ? laneType(access.element) : access.element);
  auto loop = scf::ForOp::create(b, integer(0), integer(leaf.partials),
                                 integer(1), none);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value next =
      loadAt(access, times(loop.getInductionVar(), leaf.partialStride));
  Value sum = loop.getRegionIterArgs().front();
  scf::YieldOp::create(b, emitCombine(b, op.getKind(), sum, next));
  b.setInsertionPointAfter(loop);
  return narrowed(b, loop.getResult(0), tensorType(op.getY()).getElementType());
}

/// The index that an iota names, as `element`. Indices below 2^31 are exact in
/// i32, and converted faster from there.
Value KernelEmitter::indexAt(const Access &access, Type element) {
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
