//===- EmitKernel.cpp - a kernel plan as a function -----------------------===//
//
// Loops are scf, values are scalars or vectors of up to 64 lanes, memory is
// reached through pointers. A value is emitted at the outermost loop that it
// does not depend on more deeply.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cpu/EmitKernel.h"
#include "compiler/target/cpu/EmitElementwise.h"
#include "compiler/target/cpu/Math.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cpu;
using nn::tensorType;

namespace {
/// How deep in the nest a value changes.
enum class Level { Entry, Row, Point, Lane };

/// One pointer with its strides, a leaf, a target or partial sums.
struct Access {
  int argument = 0;
  ArrayRef<int64_t> strides;
  Type element;
  Value rowPointer; // at the current row
};

class KernelEmitter {
public:
  KernelEmitter(ModuleOp module, StringRef name, const KernelPlan &plan,
                const Machine &machine)
      : plan(plan), machine(machine),
        b(UnknownLoc::get(module.getContext()), module.getContext()),
        math(b, machine), phases(*plan.group) {
    b.setInsertionPointToEnd(module.getBody());
    pointerType = LLVM::LLVMPointerType::get(module.getContext());
    Type i64 = b.getI64Type();
    code.function = func::FuncOp::create(
        b, name, b.getFunctionType({i64, i64, pointerType}, {}));
    code.function.setPrivate();
    width = plan.lane <= 1
                ? 1
                : std::min<int64_t>(kLanes, llvm::PowerOf2Ceil(plan.lane));
    rowLoops = plan.outer.size() + plan.rows.size();
    columnOps = plan.nest.columnReductions;
  }

  FailureOr<KernelCode> run() {
    Block *body = code.function.addEntryBlock();
    b.setInsertionPointToStart(body);
    collectAccesses();
    loadPointers(body->getArgument(2));
    countPhases();
    Value lo = body->getArgument(0), hi = body->getArgument(1);
    if (plan.isFlat())
      emitFlat(lo, hi);
    else if (!plan.nest.columnReductions.empty())
      emitChunks(lo, hi);
    else
      emitRows(lo, hi);
    b.setInsertionPointToEnd(body);
    func::ReturnOp::create(b);
    if (unsupported)
      return unsupported->emitError("no CPU code for ")
             << unsupported->getName() << " on this element type";
    setRange();
    return code;
  }

private:
  //===--------------------------------------------------------------------===//
  // Set-up
  //===--------------------------------------------------------------------===//

  int argument(const Placement &at, Type element) {
    KernelArgument wanted{at.buffer, at.offset * elementBytes(element)};
    auto *it = llvm::find(code.arguments, wanted);
    if (it != code.arguments.end())
      return it - code.arguments.begin();
    code.arguments.push_back(wanted);
    return code.arguments.size() - 1;
  }

  void collectAccesses() {
    for (const auto &[value, leaf] : plan.leaves) {
      Access access;
      access.strides = plan.leafStrides.find(value)->second;
      access.element = tensorType(value).getElementType();
      if (leaf.kind != Leaf::Index)
        access.argument = argument(leaf.place, access.element);
      leaves[value] = access;
    }
    for (auto [target, strides] :
         llvm::zip_equal(plan.targets, plan.targetStrides)) {
      Access access;
      access.strides = strides;
      access.element = tensorType(target.value).getElementType();
      access.argument = argument(target.place, access.element);
      targets.push_back(access);
    }
    for (size_t i = 0; i < targets.size(); ++i)
      if (!plan.targets[i].accumulate && isReadable(i))
        stored.insert({plan.targets[i].value, i});
    for (auto [spill, strides] :
         llvm::zip_equal(plan.spills, plan.spillStrides)) {
      Access access;
      access.strides = strides;
      access.element = tensorType(spill.value).getElementType();
      access.argument = argument(spill.place, access.element);
      stored.insert({spill.value, targets.size()});
      targets.push_back(access);
    }
    for (auto [op, place] : llvm::zip(columnOps, plan.partials)) {
      Access access;
      access.element = tensorType(op.getY()).getElementType();
      access.argument = argument(place, access.element);
      partials.push_back(access);
    }
  }

  /// Targets, then spills.
  Value valueOf(size_t i) const {
    size_t n = plan.targets.size();
    return i < n ? plan.targets[i].value : plan.spills[i - n].value;
  }
  bool isReadable(size_t i) const {
    return !isRowTarget(i) &&
           (targets[i].strides.back() == 1 || plan.lane == 1);
  }

  void loadPointers(Value array) {
    for (size_t i = 0; i < code.arguments.size(); ++i) {
      Value at =
          LLVM::GEPOp::create(b, pointerType, pointerType, array,
                              ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)});
      pointers.push_back(LLVM::LoadOp::create(b, pointerType, at));
    }
  }

  void setRange() {
    int64_t perRow = std::max<int64_t>(plan.lane, 1);
    for (int64_t size : plan.walk)
      perRow *= std::max<int64_t>(size, 1);
    // Enough work that handing it to another thread pays.
    constexpr int64_t kLeast = 16384;
    if (plan.isFlat()) {
      code.count = plan.lane;
      code.grain = kLeast;
    } else if (!plan.nest.columnReductions.empty()) {
      code.count = outerCount() * plan.chunks;
      code.grain = llvm::divideCeil(kLeast, perRow * kChunkRows);
    } else {
      code.count = plan.rowCount();
      code.grain = llvm::divideCeil(kLeast, perRow);
    }
  }

  int64_t outerCount() const {
    int64_t n = 1;
    for (int64_t size : plan.outer)
      n *= size;
    return n;
  }
  int64_t columns() const {
    int64_t n = plan.lane;
    for (int64_t size : plan.walk)
      n *= size;
    return n;
  }

  //===--------------------------------------------------------------------===//
  // Phases and levels
  //===--------------------------------------------------------------------===//

  int phaseOf(Value value) { return phases.of(value); }

  void countPhases() {
    phaseCount = 1;
    for (nn::ReduceOp op : plan.nest.rowReductions)
      phaseCount = std::max(phaseCount, phaseOf(op.getX()) + 1);
    for (nn::ReduceOp op : plan.nest.columnReductions)
      phaseCount = std::max(phaseCount, phaseOf(op.getX()) + 1);
    for (size_t i = 0; i < targets.size(); ++i)
      if (!isRowTarget(i))
        phaseCount = std::max(phaseCount, phaseOf(valueOf(i)) + 1);
  }

  Level levelOf(ArrayRef<int64_t> strides) const {
    auto moves = [](ArrayRef<int64_t> some) {
      return llvm::any_of(some, [](int64_t s) { return s != 0; });
    };
    if (strides.back() != 0)
      return Level::Lane;
    if (moves(strides.drop_front(rowLoops)))
      return Level::Point;
    return moves(strides.take_front(rowLoops)) ? Level::Row : Level::Entry;
  }

  Level levelOf(Value value) {
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

  //===--------------------------------------------------------------------===//
  // Values
  //===--------------------------------------------------------------------===//

  Value integer(int64_t value) {
    return arith::ConstantIntOp::create(b, value, 64);
  }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  Value times(Value x, int64_t factor) {
    return factor == 1 ? x : arith::MulIOp::create(b, x, integer(factor));
  }

  /// sum(index * stride); null when nothing moves. Outside their loops indices
  /// are missing, and their strides zero.
  Value offset(ArrayRef<Value> indices, ArrayRef<int64_t> strides) {
    Value sum;
    for (size_t i = 0; i < strides.size(); ++i) {
      if (strides[i] == 0)
        continue;
      Value term = times(indices[i], strides[i]);
      sum = sum ? add(sum, term) : term;
    }
    return sum;
  }

  Type memoryType(Type element) {
    return element.isInteger(1) ? b.getI8Type() : element;
  }
  Value advance(Value pointer, Type element, Value elements) {
    if (!elements)
      return pointer;
    return LLVM::GEPOp::create(b, pointerType, memoryType(element), pointer,
                               ArrayRef<LLVM::GEPArg>{elements});
  }
  Type laneType(Type element) {
    return width == 1 ? element : Type(VectorType::get({width}, element));
  }
  Value spread(Value value) {
    if (width == 1 || isa<VectorType>(value.getType()))
      return value;
    return vector::BroadcastOp::create(b, laneType(value.getType()), value);
  }
  Value fromMemory(Value value, Type element) {
    if (!element.isInteger(1))
      return value;
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, value,
                                 math.integer(value.getType(), 0));
  }
  Value toMemory(Value value) {
    if (!getElementTypeOrSelf(value.getType()).isInteger(1))
      return value;
    return arith::ExtUIOp::create(
        b, withElement(value.getType(), b.getI8Type()), value);
  }

  /// Pointers of the lanes of a strided access.
  Value lanePointers(Value pointer, Type element, int64_t stride) {
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
  Value allLanes() { return math.integer(laneType(b.getI1Type()), 1); }

  /// The elements at the current point. `extra` is added to the address.
  Value loadAt(const Access &access, Value extra = {}) {
    Value pointer = access.rowPointer;
    auto inner = access.strides.drop_front(rowLoops);
    pointer = advance(pointer, access.element,
                      offset(walkIndices, inner.drop_back()));
    pointer = advance(pointer, access.element, extra);
    int64_t stride = inner.back();
    Type memory = memoryType(access.element);
    unsigned alignment = elementBytes(access.element);
    if (stride == 0 || width == 1)
      return fromMemory(
          LLVM::LoadOp::create(b, memory,
                               stride == 0 ? pointer
                                           : advance(pointer, access.element,
                                                     times(laneIndex, stride)),
                               alignment),
          access.element);
    pointer = advance(pointer, access.element, times(laneIndex, stride));
    Type type = laneType(memory);
    Value loaded;
    if (stride != 1) {
      Value none = zeros(type);
      loaded = LLVM::masked_gather::create(
          b, type, lanePointers(pointer, access.element, stride),
          mask ? mask : allLanes(), ValueRange{none},
          b.getI32IntegerAttr(alignment));
    } else if (mask) {
      loaded = LLVM::MaskedLoadOp::create(b, type, pointer, mask, zeros(type),
                                          b.getI32IntegerAttr(alignment),
                                          UnitAttr());
    } else {
      loaded = LLVM::LoadOp::create(b, type, pointer, alignment);
    }
    return fromMemory(loaded, access.element);
  }

  void storeAt(const Access &access, Value value) {
    auto inner = access.strides.drop_front(rowLoops);
    int64_t stride = inner.back();
    Value pointer = advance(access.rowPointer, access.element,
                            offset(walkIndices, inner.drop_back()));
    if (stride != 0)
      pointer = advance(pointer, access.element, times(laneIndex, stride));
    unsigned alignment = elementBytes(access.element);
    if (stride != 0)
      value = spread(value);
    value = toMemory(value);
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

  Value zeros(Type type) {
    return isa<FloatType>(getElementTypeOrSelf(type)) ? math.constant(type, 0)
                                                      : math.integer(type, 0);
  }

  /// The value of an nn tensor at the current point: a scalar when all lanes
  /// agree, otherwise a vector.
  Value evaluate(Value value) {
    Level level = levelOf(value);
    auto slot = stored.find(value);
    bool inMemory = slot != stored.end() && phaseOf(value) < currentPhase &&
                    level == Level::Lane;
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
    Value result = inMemory ? loadAt(targets[slot->second]) : compute(value);
    known[value] = result;
    return result;
  }

  Value compute(Value value) {
    Operation *op = value.getDefiningOp();
    if (leaves.count(value))
      return readLeaf(value);
    if (auto constant = dyn_cast<nn::ConstantOp>(op))
      return arith::ConstantOp::create(
          b, cast<TypedAttr>(cast<SplatElementsAttr>(constant.getValue())
                                 .getSplatValue<Attribute>()));
    if (!plan.group->ops.contains(op))
      return evaluate(op->getOperand(0)); // a view inside the group
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(evaluate(operand));
    if (unsupported)
      return operands.front();
    Value result = emitElementwise(b, machine, op, operands);
    if (!result) {
      unsupported = op;
      return operands.front();
    }
    return result;
  }

  Value readLeaf(Value value) {
    const Leaf &leaf = plan.leaves.find(value)->second;
    Access &access = leaves[value];
    if (leaf.kind == Leaf::Memory)
      return loadAt(access);
    if (leaf.kind == Leaf::Index)
      return indexAt(access);
    // Partial column sums, in order.
    auto op = cast<nn::ReduceOp>(value.getDefiningOp());
    bool lanes = access.strides.back() != 0;
    Value none = emitIdentity(
        b, op.getKind(), lanes ? laneType(access.element) : access.element);
    auto loop = scf::ForOp::create(b, integer(0), integer(leaf.partials),
                                   integer(1), none);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value next =
        loadAt(access, times(loop.getInductionVar(), leaf.partialStride));
    scf::YieldOp::create(
        b,
        emitCombine(b, op.getKind(), loop.getRegionIterArgs().front(), next));
    return loop.getResult(0);
  }

  /// The index that an iota names, as its element type.
  Value indexAt(const Access &access) {
    SmallVector<Value> indices(rowIndices);
    indices.append(walkIndices);
    Value sum = offset(indices, access.strides.drop_back());
    if (!sum)
      sum = integer(0);
    int64_t stride = access.strides.back();
    bool lanes = stride != 0;
    if (lanes)
      sum = add(sum, times(laneIndex, stride));
    Type element = access.element;
    // Indices below 2^31 are exact in i32, and converted faster from there.
    sum = arith::TruncIOp::create(b, b.getI32Type(), sum);
    if (lanes && width > 1) {
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

  //===--------------------------------------------------------------------===//
  // One row
  //===--------------------------------------------------------------------===//

  /// Sets the row's indices and pointers from its number.
  void enterRow(Value row) {
    rowIndices.clear();
    SmallVector<int64_t> sizes(plan.outer);
    sizes.append(plan.rows);
    SmallVector<Value> reversed;
    for (size_t d = sizes.size(); d-- > 0;) {
      if (d == 0) {
        reversed.push_back(row);
        break;
      }
      Value size = integer(std::max<int64_t>(sizes[d], 1));
      reversed.push_back(arith::RemUIOp::create(b, row, size));
      row = arith::DivUIOp::create(b, row, size);
    }
    rowIndices.assign(reversed.rbegin(), reversed.rend());
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

  bool isRowTarget(size_t i) const {
    return (!plan.walk.empty() || plan.lane != 1) &&
           levelOf(targets[i].strides) < Level::Point;
  }

  void emitRow() {
    atRow.clear();
    for (currentPhase = 0; currentPhase < phaseCount; ++currentPhase)
      emitPhase(currentPhase);
    rowAnchor = nullptr;
    for (size_t i = 0; i < targets.size(); ++i)
      if (isRowTarget(i))
        write(i);
  }

  void write(size_t i) {
    Value value = evaluate(valueOf(i));
    if (i < plan.targets.size() && plan.targets[i].accumulate) {
      Value old = loadAt(targets[i]);
      if (isa<VectorType>(old.getType()))
        value = spread(value);
      value = emitCombine(b, "sum", old, value);
    }
    storeAt(targets[i], value);
  }

  void emitPhase(int phase) {
    SmallVector<nn::ReduceOp> reductions;
    for (nn::ReduceOp op : plan.nest.rowReductions)
      if (phaseOf(op.getX()) == phase)
        reductions.push_back(op);
    bool columns =
        llvm::any_of(plan.nest.columnReductions, [&](nn::ReduceOp op) {
          return phaseOf(op.getX()) == phase;
        });
    bool stores = false;
    for (size_t i = 0; i < targets.size(); ++i)
      stores |= !isRowTarget(i) && phaseOf(valueOf(i)) == phase;
    if (reductions.empty() && !columns && !stores)
      return;
    SmallVector<Value> sums;
    for (nn::ReduceOp op : reductions)
      sums.push_back(emitIdentity(
          b, op.getKind(), laneType(tensorType(op.getX()).getElementType())));
    rowAnchor = nullptr;
    sums = emitWalk(0, phase, reductions, sums);
    rowAnchor = nullptr;
    for (auto [op, sum] : llvm::zip_equal(reductions, sums))
      atRow[op.getY()] = fold(op.getKind(), sum);
  }

  /// One value from the lanes: halves are combined until one is left.
  Value fold(StringRef kind, Value lanes) {
    auto type = dyn_cast<VectorType>(lanes.getType());
    if (!type)
      return lanes;
    for (int64_t n = type.getNumElements(); n > 1; n /= 2) {
      auto half = [&](int64_t from) -> Value {
        return vector::ExtractStridedSliceOp::create(b, lanes, from, n / 2, 1);
      };
      Value low = half(0), high = half(n / 2);
      lanes = emitCombine(b, kind, low, high);
    }
    return vector::ExtractOp::create(b, lanes, 0);
  }

  SmallVector<Value> emitWalk(size_t depth, int phase,
                              ArrayRef<nn::ReduceOp> reductions,
                              ArrayRef<Value> sums) {
    if (depth == 0)
      walkIndices.clear();
    if (depth == plan.walk.size())
      return emitLanes(phase, reductions, sums);
    auto loop = scf::ForOp::create(b, integer(0), integer(plan.walk[depth]),
                                   integer(1), sums);
    if (!rowAnchor)
      rowAnchor = loop;
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    walkIndices.push_back(loop.getInductionVar());
    SmallVector<Value> inner(loop.getRegionIterArgs());
    inner = emitWalk(depth + 1, phase, reductions, inner);
    walkIndices.pop_back();
    yield(loop, inner);
    return loop.getResults();
  }

  /// scf.for without iteration arguments already has its yield.
  void yield(scf::ForOp loop, ArrayRef<Value> values) {
    if (values.empty())
      return;
    b.setInsertionPointToEnd(loop.getBody());
    scf::YieldOp::create(b, values);
  }

  SmallVector<Value> emitLanes(int phase, ArrayRef<nn::ReduceOp> reductions,
                               ArrayRef<Value> start) {
    SmallVector<Value> sums(start);
    if (plan.lane == 0)
      return sums;
    mask = nullptr;
    int64_t full = plan.lane / width * width;
    if (full > width) {
      auto loop = scf::ForOp::create(b, integer(0), integer(full),
                                     integer(width), sums);
      if (!rowAnchor)
        rowAnchor = loop;
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      laneIndex = loop.getInductionVar();
      SmallVector<Value> inner(loop.getRegionIterArgs());
      emitPoint(phase, reductions, inner);
      yield(loop, inner);
      sums.assign(loop.getResults().begin(), loop.getResults().end());
    } else if (full == width) {
      laneIndex = integer(0);
      emitPoint(phase, reductions, sums);
    }
    if (int64_t rest = plan.lane - full) {
      laneIndex = integer(full);
      SmallVector<bool> lanes(width, false);
      std::fill_n(lanes.begin(), rest, true);
      mask = arith::ConstantOp::create(
          b, DenseElementsAttr::get(cast<ShapedType>(laneType(b.getI1Type())),
                                    lanes));
      emitPoint(phase, reductions, sums);
      mask = nullptr;
    }
    return sums;
  }

  /// Everything of a phase at one point (of up to 64 lanes).
  void emitPoint(int phase, ArrayRef<nn::ReduceOp> reductions,
                 SmallVectorImpl<Value> &sums) {
    atPoint.clear();
    for (auto [reduction, sum] : llvm::zip_equal(reductions, sums)) {
      nn::ReduceOp op = reduction;
      Value next =
          emitCombine(b, op.getKind(), sum, spread(evaluate(op.getX())));
      sum = mask ? arith::SelectOp::create(b, mask, next, sum) : next;
    }
    for (auto [op, access] : llvm::zip(columnOps, partials))
      if (phaseOf(op.getX()) == phase) {
        Value x = spread(evaluate(op.getX()));
        storeAt(access, emitCombine(b, op.getKind(), loadAt(access), x));
      }
    for (size_t i = 0; i < targets.size(); ++i)
      if (!isRowTarget(i) && phaseOf(valueOf(i)) == phase)
        write(i);
  }

  //===--------------------------------------------------------------------===//
  // All rows
  //===--------------------------------------------------------------------===//

  void emitRows(Value lo, Value hi) {
    auto loop = scf::ForOp::create(b, lo, hi, integer(1));
    entryAnchor = loop;
    b.setInsertionPointToStart(loop.getBody());
    enterRow(loop.getInductionVar());
    emitRow();
  }

  /// One flat loop over elements; the last of them masked.
  void emitFlat(Value lo, Value hi) {
    enterRow({});
    if (plan.lane == 1) {
      laneIndex = integer(0);
      emitFlatPoint();
      return;
    }
    Value end = hi;
    bool hasTail = plan.lane % width != 0;
    if (hasTail) {
      Value count = arith::SubIOp::create(b, hi, lo);
      Value rest = arith::AndIOp::create(b, count, integer(width - 1));
      end = arith::SubIOp::create(b, hi, rest);
    }
    auto loop = scf::ForOp::create(b, lo, end, integer(width));
    entryAnchor = loop;
    rowAnchor = loop;
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      laneIndex = loop.getInductionVar();
      emitFlatPoint();
    }
    if (!hasTail)
      return;
    Value some = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, end, hi);
    auto tail = scf::IfOp::create(b, some, /*withElse=*/false);
    b.setInsertionPointToStart(tail.thenBlock());
    laneIndex = end;
    SmallVector<int8_t> lanes;
    for (int64_t i = 0; i < width; ++i)
      lanes.push_back(i);
    auto type = VectorType::get({width}, b.getI8Type());
    Value iota = arith::ConstantOp::create(
        b, DenseElementsAttr::get(type, ArrayRef<int8_t>(lanes)));
    Value rest = arith::TruncIOp::create(b, b.getI8Type(),
                                         arith::SubIOp::create(b, hi, end));
    mask =
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, iota, spread(rest));
    emitFlatPoint();
    mask = nullptr;
  }
  void emitFlatPoint() {
    atPoint.clear();
    for (size_t i = 0; i < targets.size(); ++i)
      write(i);
  }

  /// Chunks of rows, each with its own partial sums of the columns.
  void emitChunks(Value lo, Value hi) {
    auto chunk = scf::ForOp::create(b, lo, hi, integer(1));
    entryAnchor = chunk;
    b.setInsertionPointToStart(chunk.getBody());
    Value number = chunk.getInductionVar();
    SmallVector<int64_t> dense(rowLoops, 0), sizes(plan.walk);
    sizes.push_back(plan.lane);
    dense.append(denseStrides(sizes));
    if (plan.lane == 1)
      dense.back() = 0;
    for (auto [op, access] : llvm::zip(columnOps, partials)) {
      access.rowPointer = advance(pointers[access.argument], access.element,
                                  times(number, columns()));
      access.strides = dense;
      clearPartials(op.getKind(), access);
    }
    int64_t rows = 1;
    for (int64_t size : plan.rows)
      rows *= size;
    Value outer = arith::DivUIOp::create(b, number, integer(plan.chunks));
    Value within = arith::RemUIOp::create(b, number, integer(plan.chunks));
    Value first = times(within, kChunkRows);
    Value last = arith::MinSIOp::create(b, add(first, integer(kChunkRows)),
                                        integer(rows));
    Value base = times(outer, rows);
    auto row =
        scf::ForOp::create(b, add(base, first), add(base, last), integer(1));
    b.setInsertionPointToStart(row.getBody());
    enterRow(row.getInductionVar());
    emitRow();
  }

  void clearPartials(StringRef kind, Access &access) {
    Value identity = emitIdentity(b, kind, access.element);
    auto loop =
        scf::ForOp::create(b, integer(0), integer(columns()), integer(1));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value at =
        advance(access.rowPointer, access.element, loop.getInductionVar());
    LLVM::StoreOp::create(b, toMemory(identity), at,
                          elementBytes(access.element));
  }

  const KernelPlan &plan;
  const Machine &machine;
  ImplicitLocOpBuilder b;
  MathEmitter math;
  KernelCode code;
  Type pointerType;
  /// Lanes of a vector; 1 means scalars.
  int64_t width = 1;
  size_t rowLoops = 0;
  int phaseCount = 1;
  llvm::MapVector<Value, Access> leaves;
  std::vector<Access> targets, partials;
  SmallVector<nn::ReduceOp> columnOps;
  SmallVector<Value> pointers;
  Phases phases;
  int currentPhase = 0;
  /// Values in memory since an earlier phase: positions in `targets`.
  llvm::DenseMap<Value, size_t> stored;
  llvm::DenseMap<Value, Level> levels;
  llvm::DenseMap<Value, Value> atEntry, atRow, atPoint;
  Operation *entryAnchor = nullptr, *rowAnchor = nullptr;
  SmallVector<Value> rowIndices, walkIndices;
  Value laneIndex, mask;
  Operation *unsupported = nullptr;
};
} // namespace

FailureOr<KernelCode> cpu::emitKernel(ModuleOp module, StringRef name,
                                      const KernelPlan &plan,
                                      const Machine &machine) {
  return KernelEmitter(module, name, plan, machine).run();
}
