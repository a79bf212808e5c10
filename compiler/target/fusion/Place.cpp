//===- Place.cpp - the units of a task ------------------------------------===//
//
// Turns groups, library ops, concats, pads and stores into units with operands
// in memory and the order that their data needs. Copies appear only where a
// reader cannot address its operand.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/fusion/Math.h"
#include "compiler/target/fusion/Overlaps.h"
#include "compiler/target/fusion/Plan.h"
#include "dialects/nn/EvenRows.h"
#include "dialects/pipe/Pipe.h"
#include "runtime/StageAbi.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;
using nn::tensorType;

namespace {
/// A value in memory: where, complete after which units, and which pipe.load it
/// reads directly.
struct Placed {
  Placement at;
  SmallVector<int> after;
  Operation *load = nullptr;
};

class Placer {
public:
  Placer(TaskPlan &plan, const PlanOptions &options)
      : plan(plan), options(options) {}

  LogicalResult run() {
    homes = chooseHomes(plan, options.evenRows);
    int64_t position = 0;
    for (Operation &op : plan.func.getBody().front())
      order[&op] = position++;
    for (auto [i, group] : llvm::enumerate(plan.groups))
      if (!homes.targets[i].empty())
        unitsOfGroup(i);
    for (Operation &op : plan.func.getBody().front())
      if (isLibraryOp(&op) && hasHome(&op))
        unitOf[&op] = newUnit(Unit::Library, &op);
    for (size_t i = 0, n = plan.units.size(); i < n; ++i)
      if (plan.units[i].kind == Unit::Kernel)
        fillKernel(i);
      else if (failed(fillLibrary(i)))
        return failure();
    for (Operation &op : plan.func.getBody().front())
      if (auto store = dyn_cast<pipe::StoreOp>(op))
        placeStore(store);
    orderMemory();
    return success();
  }

private:
  //===--------------------------------------------------------------------===//
  // Units and buffers
  //===--------------------------------------------------------------------===//

  int newUnit(Unit::Kind kind, Operation *op) {
    plan.units.emplace_back();
    Unit &unit = plan.units.back();
    unit.kind = kind;
    unit.op = op;
    unit.priority = op ? order[op] : 0;
    return plan.units.size() - 1;
  }

  int newBuffer(Buffer buffer) {
    plan.buffers.push_back(std::move(buffer));
    return plan.buffers.size() - 1;
  }
  int arena(int64_t bytes) {
    Buffer buffer;
    buffer.bytes = bytes;
    return newBuffer(buffer);
  }
  Placement denseArena(Value value) {
    return {arena(nn::byteSize(value.getType())), 0,
            denseStrides(tensorType(value).getShape())};
  }

  bool hasHome(Operation *op) {
    return llvm::any_of(op->getResults(),
                        [&](Value v) { return homes.place.contains(v); });
  }

  /// Makes `unit` a reader of the value; returns where it is.
  Placement read(int unit, Value value) {
    const Placed &source = locate(value);
    llvm::append_range(plan.units[unit].after, source.after);
    plan.units[unit].touches.push_back(source.at.buffer);
    if (source.load)
      readers[source.load].push_back(unit);
    return source.at;
  }

  int copy(Value value, Placement from, const Placement &to,
           ArrayRef<int> after, Operation *load, int64_t priority) {
    int index = newUnit(Unit::Copy, nullptr);
    Unit &unit = plan.units[index];
    unit.priority = priority;
    unit.from = from;
    unit.to = to;
    unit.shape.assign(tensorType(value).getShape());
    unit.element = tensorType(value).getElementType();
    unit.after.assign(after);
    unit.touches = {from.buffer, to.buffer};
    if (load)
      readers[load].push_back(index);
    return index;
  }
  int copy(Value value, const Placement &to, int64_t priority) {
    Placed source = locate(value);
    return copy(value, source.at, to, source.after, source.load, priority);
  }

  //===--------------------------------------------------------------------===//
  // Where values are
  //===--------------------------------------------------------------------===//

  int64_t positionOf(Value value) {
    Operation *op = value.getDefiningOp();
    return op ? order[op] : 0;
  }

  const Placed &locate(Value value) {
    auto it = placed.find(value);
    if (it == placed.end()) {
      auto found = std::make_unique<Placed>(compute(value));
      it = placed.try_emplace(value, std::move(found)).first;
    }
    return *it->second;
  }

  Placed compute(Value value) {
    Operation *op = value.getDefiningOp();
    if (auto load = dyn_cast<pipe::LoadOp>(op))
      return fromRegion(load);
    if (auto scalar = dyn_cast<pipe::ScalarOp>(op))
      return fromFrame(scalar);
    if (auto constant = dyn_cast<nn::ConstantOp>(op))
      return fromConstant(constant);
    if (isa<nn::IotaOp>(op))
      return written(value);
    if (isa<nn::ConcatOp, nn::PadOp>(op))
      return joined(op);
    if (auto it = unitOf.find(op); it != unitOf.end())
      return {homes.place.lookup(value), {it->second}, nullptr};
    if (auto it = producers.find(value); it != producers.end())
      return {homes.place.lookup(value), it->second, nullptr};
    assert(isView(op) && "a value that nothing computes");
    Placed source = locate(op->getOperand(0));
    if (auto at = throughView(op, source.at))
      return {*at, source.after, source.load};
    Placement dense = denseArena(op->getOperand(0));
    int unit = copy(op->getOperand(0), source.at, dense, source.after,
                    source.load, order[op]);
    return {*throughView(op, dense), {unit}, nullptr};
  }

  Placed fromRegion(pipe::LoadOp load) {
    Buffer buffer;
    buffer.kind = Buffer::Region;
    buffer.region = pipe::regionIndex(load.getRegion());
    buffer.offset = load.getOffset();
    buffer.bytes = load.bytes();
    buffer.leaveGaps(tensorType(load.getY()), load.getPitch());
    return {{newBuffer(buffer), 0, load.strides()}, {}, load};
  }

  Placed fromFrame(pipe::ScalarOp scalar) {
    if (scalar.getName() == "update") {
      Placement at = denseArena(scalar.getY());
      int unit = newUnit(Unit::Scalar, scalar);
      plan.units[unit].operands = {at};
      plan.units[unit].touches = {at.buffer};
      return {at, {unit}, nullptr};
    }
    Buffer buffer;
    buffer.kind = Buffer::Frame;
    buffer.offset = llvm::StringSwitch<int64_t>(scalar.getName())
                        .Case("lr_factor", offsetof(PipecFrame, lr_factor))
                        .Case("grad_scale", offsetof(PipecFrame, grad_scale))
                        .Case("seed", offsetof(PipecFrame, seed))
                        .Case("step", offsetof(PipecFrame, step))
                        .Default(offsetof(PipecFrame, microbatch));
    buffer.bytes = sizeof(double);
    return {{newBuffer(buffer), 0, {}}, {}, nullptr};
  }

  /// A splat is one element in memory, repeated by strides of zero.
  Placed fromConstant(nn::ConstantOp constant) {
    Buffer buffer;
    buffer.kind = Buffer::Constant;
    auto type = tensorType(constant.getY());
    SmallVector<int64_t> strides = denseStrides(type.getShape());
    buffer.constant = constant.getValue();
    if (auto splat = dyn_cast<SplatElementsAttr>(constant.getValue())) {
      buffer.constant =
          splat.resizeSplat(RankedTensorType::get({}, type.getElementType()));
      strides.assign(type.getRank(), 0);
    }
    buffer.bytes = nn::byteSize(buffer.constant.getType());
    return {{newBuffer(buffer), 0, strides}, {}, nullptr};
  }

  /// A value that is free to compute, written to memory for one who must read.
  Placed written(Value value) {
    Placement at = denseArena(value);
    int unit = newUnit(Unit::Kernel, value.getDefiningOp());
    plan.units[unit].ownGroup = std::make_unique<Group>(Group::ofValue(value));
    plan.units[unit].kernel.group = plan.units[unit].ownGroup.get();
    plan.units[unit].kernel.targets = {{value, at, false}};
    fillKernel(unit);
    return {at, {unit}, nullptr};
  }

  /// Concat and pad: parts that are not in place are copied there.
  Placed joined(Operation *op) {
    Value result = op->getResult(0);
    auto home = homes.place.find(result);
    Placed whole{home != homes.place.end() ? home->second : denseArena(result),
                 {},
                 nullptr};
    for (OpOperand &part : op->getOpOperands()) {
      Placement to = partPlace(op, part.getOperandNumber(), whole.at);
      if (homes.inPlace.contains(&part))
        llvm::append_range(whole.after, locate(part.get()).after);
      else
        whole.after.push_back(copy(part.get(), to, order[op]));
    }
    if (auto pad = dyn_cast<nn::PadOp>(op))
      fillBorder(pad, whole);
    return whole;
  }

  /// The elements of a pad that do not come from its operand, as boxes.
  void fillBorder(nn::PadOp pad, Placed &whole) {
    auto type = tensorType(pad.getY());
    auto from = tensorType(pad.getX()).getShape();
    auto element = RankedTensorType::get({}, type.getElementType());
    Buffer buffer;
    buffer.kind = Buffer::Constant;
    double value = pad.getValue().convertToDouble();
    Attribute filler =
        isa<FloatType>(type.getElementType())
            ? Attribute(FloatAttr::get(type.getElementType(), value))
            : IntegerAttr::get(type.getElementType(),
                               static_cast<int64_t>(value));
    buffer.constant = DenseElementsAttr::get(element, filler);
    buffer.bytes = elementBytes(type.getElementType());
    int constant = newBuffer(buffer);
    SmallVector<int64_t> start(type.getRank(), 0), size(type.getShape());
    auto box = [&](size_t d, int64_t first, int64_t count) {
      if (count <= 0)
        return;
      Placement to = whole.at;
      SmallVector<int64_t> shape = size;
      shape[d] = count;
      for (size_t k = 0; k < shape.size(); ++k)
        to.offset += (k == d ? start[k] + first : start[k]) * to.strides[k];
      int index = newUnit(Unit::Copy, nullptr);
      Unit &unit = plan.units[index];
      unit.priority = order[pad];
      unit.from = {constant, 0, SmallVector<int64_t>(shape.size(), 0)};
      unit.to = to;
      unit.shape = shape;
      unit.element = type.getElementType();
      unit.touches = {constant, to.buffer};
      whole.after.push_back(index);
    };
    for (size_t d = 0; d < size.size(); ++d) {
      int64_t step = pad.getInterior()[d] + 1;
      int64_t inner = from[d] == 0 ? 0 : (from[d] - 1) * step + 1;
      box(d, 0, pad.getLow()[d]);
      box(d, pad.getLow()[d] + inner, pad.getHigh()[d]);
      start[d] = pad.getLow()[d];
      size[d] = inner;
    }
    // Between elements: for each dimension the planes that no element is in.
    for (size_t d = 0; d < size.size(); ++d) {
      int64_t step = pad.getInterior()[d] + 1;
      if (step == 1)
        continue;
      SmallVector<int64_t> full = size;
      for (int64_t gap = 1; gap < step; ++gap) {
        Placement to = whole.at;
        SmallVector<int64_t> shape = full;
        for (size_t k = 0; k < shape.size(); ++k) {
          int64_t kStep = pad.getInterior()[k] + 1;
          to.offset += start[k] * to.strides[k];
          if (k < d) { // only where the earlier dimensions hold elements
            shape[k] = from[k];
            to.strides[k] *= kStep;
          }
        }
        to.offset += gap * whole.at.strides[d];
        to.strides[d] *= step;
        shape[d] = from[d] - 1;
        if (shape[d] <= 0)
          continue;
        int index = newUnit(Unit::Copy, nullptr);
        Unit &unit = plan.units[index];
        unit.priority = order[pad];
        unit.from = {constant, 0, SmallVector<int64_t>(shape.size(), 0)};
        unit.to = to;
        unit.shape = shape;
        unit.element = type.getElementType();
        unit.touches = {constant, to.buffer};
        whole.after.push_back(index);
      }
    }
  }

  //===--------------------------------------------------------------------===//
  // Kernels
  //===--------------------------------------------------------------------===//

  /// The kernel of a group; column reductions get a second one that adds their
  /// partial sums and writes them.
  void unitsOfGroup(int index) {
    Group &group = plan.groups[index];
    const Nest nest = *nestOf(group);
    auto isColumn = [&](Value value) {
      return llvm::any_of(nest.columnReductions,
                          [&](nn::ReduceOp op) { return op.getY() == value; });
    };
    int unit = newUnit(Unit::Kernel, group.ops.back());
    plan.units[unit].kernel.group = &group;
    llvm::MapVector<Value, SmallVector<Target>> columns;
    for (const Target &target : homes.targets[index]) {
      if (isColumn(target.value)) {
        columns[target.value].push_back(target);
        continue;
      }
      plan.units[unit].kernel.targets.push_back(target);
      producers[target.value] = {unit};
    }
    for (nn::ReduceOp op : nest.columnReductions)
      finishColumns(unit, op, columns[op.getY()]);
  }

  void finishColumns(int unit, nn::ReduceOp op, ArrayRef<Target> targets) {
    Nest nest = *nestOf(*plan.units[unit].kernel.group);
    const Group &group = *plan.units[unit].kernel.group;
    int64_t rows = 1;
    for (int d : nest.rows)
      rows *= group.extents[d];
    int64_t chunks = std::max<int64_t>(1, llvm::divideCeil(rows, kChunkRows));
    auto type = tensorType(op.getY());
    // [outer][chunk][column]
    int64_t columns = 1, size = type.getNumElements();
    for (const DimList *dims : {&nest.walk, &nest.lane})
      for (int d : *dims)
        columns *= group.extents[d];
    Type sums = accumulatorType(type.getElementType());
    int buffer = arena(size * chunks * elementBytes(sums));
    plan.units[unit].kernel.partials.push_back({buffer, 0, {}});
    plan.units[unit].kernel.chunks = chunks;
    plan.units[unit].touches.push_back(buffer);
    if (targets.empty())
      return;

    int finish = newUnit(Unit::Kernel, op);
    Unit &second = plan.units[finish];
    second.priority = plan.units[unit].priority;
    second.ownGroup = std::make_unique<Group>(Group::ofValue(op.getY()));
    second.kernel.group = second.ownGroup.get();
    second.kernel.targets.assign(targets.begin(), targets.end());
    SmallVector<int64_t> strides = denseStrides(type.getShape());
    for (int64_t &stride : strides) // outer dimensions step over all chunks
      if (stride >= columns)
        stride *= chunks;
    Leaf leaf;
    leaf.kind = Leaf::Partials;
    leaf.place = {buffer, 0, strides};
    leaf.partials = chunks;
    leaf.partialStride = columns;
    second.kernel.leaves[op.getY()] = leaf;
    second.after.push_back(unit);
    second.touches.push_back(buffer);
    producers[op.getY()] = {finish};
  }

  bool isLeaf(const KernelPlan &kernel, Value value) {
    return !kernel.group->computes(value) && !kernel.leaves.contains(value);
  }

  void addLeaf(int unit, Value value) {
    KernelPlan &kernel = plan.units[unit].kernel;
    if (!isLeaf(kernel, value))
      return;
    Leaf leaf;
    if (auto iota = dyn_cast<nn::IotaOp>(value.getDefiningOp())) {
      leaf.kind = Leaf::Index;
      leaf.place.strides.assign(tensorType(value).getRank(), 0);
      leaf.place.strides[iota.getAxis()] = 1;
    } else if (isImmediate(value)) {
      return;
    } else {
      leaf.place = read(unit, value);
    }
    plan.units[unit].kernel.leaves[value] = leaf;
  }

  /// A dense copy of what a kernel cannot read where it is. Dimensions that
  /// only repeat stay so.
  void replaceLeaf(int unit, Value value) {
    Placed source = locate(value);
    int64_t priority = plan.units[unit].priority;
    Placement dense = denseArena(value);
    int index;
    Leaf &leaf = plan.units[unit].kernel.leaves[value];
    if (leaf.kind == Leaf::Index) {
      Placed memory = written(value);
      dense = memory.at;
      index = memory.after.front();
    } else {
      index =
          copy(value, source.at, dense, source.after, source.load, priority);
    }
    plan.units[unit].kernel.leaves[value] = {Leaf::Memory, dense, 0, 0};
    plan.units[unit].after.push_back(index);
    plan.units[unit].touches.push_back(dense.buffer);
  }

  void fillKernel(int unit) {
    const Group *group = plan.units[unit].kernel.group;
    plan.units[unit].kernel.nest = *nestOf(*group);
    for (Operation *op : group->ops)
      for (Value operand : op->getOperands())
        addLeaf(unit, operand);
    for (size_t i = 0; i < plan.units[unit].kernel.targets.size(); ++i) {
      addLeaf(unit, plan.units[unit].kernel.targets[i].value);
      plan.units[unit].touches.push_back(
          plan.units[unit].kernel.targets[i].place.buffer);
    }
    placeSpills(unit);
    while (true) {
      Misfits misfits = settleLoops(plan.units[unit].kernel);
      if (misfits.empty())
        break;
      for (Value value : misfits.leaves)
        replaceLeaf(unit, value);
      for (size_t target : misfits.targets)
        replaceTarget(unit, target);
    }
  }

  /// Values of more bytes are not kept in memory of their own: they leave the
  /// caches before they are read.
  static constexpr int64_t kMostSpilled = int64_t(1) << 20;

  void placeSpills(int unit) {
    if (!options.spills)
      return;
    for (const Spill &spill : chooseSpills(plan.units[unit].kernel)) {
      if (spill.target < 0 &&
          nn::byteSize(spill.value.getType()) > kMostSpilled)
        continue;
      KernelPlan &kernel = plan.units[unit].kernel;
      Placement at = spill.target >= 0 ? kernel.targets[spill.target].place
                                       : spillArena(kernel, spill.value);
      kernel.spills.push_back({spill.value, at, false});
      plan.units[unit].touches.push_back(at.buffer);
    }
  }

  /// As even as what the kernel reads may be.
  Placement spillArena(const KernelPlan &kernel, Value value) {
    const int64_t pitch = options.evenRows && kernel.nest.lane.size() <= 1
                              ? nn::evenPitch(tensorType(value))
                              : 0;
    return {arena(pipe::placeBytes(value.getType(), pitch)), 0,
            pipe::placeStrides(value.getType(), pitch)};
  }

  void replaceTarget(int unit, size_t index) {
    Target &target = plan.units[unit].kernel.targets[index];
    Placement to = target.place, dense = denseArena(target.value);
    Value value = target.value;
    assert(!target.accumulate && "an accumulating target that does not fit");
    plan.units[unit].kernel.targets[index].place = dense;
    plan.units[unit].touches.push_back(dense.buffer);
    int done =
        copy(value, dense, to, {unit}, nullptr, plan.units[unit].priority);
    producers[value] = {done};
  }

  //===--------------------------------------------------------------------===//
  // Library calls and stores
  //===--------------------------------------------------------------------===//

  LogicalResult fillLibrary(int unit) {
    Operation *op = plan.units[unit].op;
    for (Value operand : op->getOperands()) {
      Placement at = read(unit, operand);
      if (!canAddress(op, operand, at)) {
        Placed &dense = densified(operand);
        at = dense.at;
        llvm::append_range(plan.units[unit].after, dense.after);
        plan.units[unit].touches.push_back(at.buffer);
      }
      plan.units[unit].operands.push_back(at);
    }
    if (auto matmul = dyn_cast<nn::MatmulOp>(op))
      simplifyBatch(unit, matmul);
    for (OpResult result : op->getResults()) {
      Placement at = homes.place.lookup(result);
      if (at.buffer < 0 && result.getResultNumber() == 0)
        at = denseArena(result); // the call writes it though no one reads it
      plan.units[unit].operands.push_back(at);
      if (at.buffer >= 0)
        plan.units[unit].touches.push_back(at.buffer);
    }
    plan.units[unit].accumulate = homes.accumulated.contains(op->getResult(0));
    FailureOr<int64_t> scratch = options.scratch(op);
    if (failed(scratch))
      return failure();
    if (*scratch > 0) {
      plan.units[unit].scratch = arena(*scratch);
      plan.units[unit].touches.push_back(plan.units[unit].scratch);
    }
    return success();
  }

  /// Operands whose batch dimensions take too many loops become dense.
  void simplifyBatch(int unit, nn::MatmulOp op) {
    SmallVector<Placement> places = plan.units[unit].operands;
    places.push_back(homes.place.lookup(op.getY()));
    if (batchLoops(tensorType(op.getY()).getShape(), places) <= kMostBatchLoops)
      return;
    for (int i : {0, 1}) {
      Placed &dense = densified(op->getOperand(i));
      llvm::append_range(plan.units[unit].after, dense.after);
      plan.units[unit].operands[i] = dense.at;
      plan.units[unit].touches.push_back(dense.at.buffer);
    }
  }

  bool canAddress(Operation *op, Value operand, const Placement &at) {
    ArrayRef<int64_t> shape = tensorType(operand).getShape();
    if (isa<nn::MatmulOp>(op))
      return isMatrixPlace(shape, at);
    if (isAttention(op))
      return shape.back() == 1 || at.strides.back() == 1;
    SmallVector<int64_t> dense = denseStrides(shape);
    for (size_t d = 0; d < shape.size(); ++d)
      if (shape[d] != 1 && at.strides[d] != dense[d])
        return false;
    return true;
  }

  /// A dense copy, made once for all who need it.
  Placed &densified(Value value) {
    auto &slot = dense[value];
    if (!slot) {
      Placement to = denseArena(value);
      int unit = copy(value, to, positionOf(value));
      slot = std::make_unique<Placed>(Placed{to, {unit}, nullptr});
    }
    return *slot;
  }

  void placeStore(pipe::StoreOp store) {
    if (homes.stored.contains(store)) {
      // The value's own unit writes it.
      Value base = store.getX();
      while (!producers.contains(base) &&
             !unitOf.contains(base.getDefiningOp()) &&
             isView(base.getDefiningOp()))
        base = base.getDefiningOp()->getOperand(0);
      writers[store] = writersOf(base);
      return;
    }
    Buffer buffer;
    buffer.kind = Buffer::Region;
    buffer.region = pipe::regionIndex(store.getRegion());
    buffer.offset = store.getOffset();
    buffer.bytes = store.bytes();
    buffer.leaveGaps(tensorType(store.getX()), store.getPitch());
    Placement to{newBuffer(buffer), 0, store.strides()};
    if (!store.getAccumulate()) {
      writers[store] = {copy(store.getX(), to, order[store])};
      return;
    }
    int unit = newUnit(Unit::Kernel, store);
    plan.units[unit].ownGroup =
        std::make_unique<Group>(Group::ofValue(store.getX()));
    plan.units[unit].kernel.group = plan.units[unit].ownGroup.get();
    plan.units[unit].kernel.targets = {{store.getX(), to, true}};
    fillKernel(unit);
    writers[store] = {unit};
  }

  SmallVector<int> writersOf(Value base) {
    if (auto it = producers.find(base); it != producers.end())
      return it->second;
    if (auto it = unitOf.find(base.getDefiningOp()); it != unitOf.end())
      return {it->second};
    return locate(base).after;
  }

  //===--------------------------------------------------------------------===//
  // Memory that several ops name
  //===--------------------------------------------------------------------===//

  /// Loads before a store see the old value, loads after it the new one; stores
  /// of one place keep their order.
  void orderMemory() {
    auto before = [&](ArrayRef<int> first, ArrayRef<int> second) {
      for (int a : first)
        for (int b : second)
          if (a != b)
            plan.units[b].after.push_back(a);
    };
    const SmallVector<Operation *> stores = llvm::map_to_vector(
        writers, [](const auto &writer) { return writer.first; });
    const Overlaps stored(stores);
    for (auto &[load, units] : readers)
      for (Operation *store : stored.with(load)) {
        const SmallVector<int> &written = writers.find(store)->second;
        if (order[load] < order[store])
          before(units, written);
        else
          before(written, units);
      }
    // Each with those behind it in `stores`.
    llvm::SmallDenseSet<Operation *> passed;
    for (auto &[store, units] : writers) {
      passed.insert(store);
      for (Operation *other : stored.with(store))
        if (!passed.contains(other))
          before(units, writers.find(other)->second);
    }
  }

  TaskPlan &plan;
  const PlanOptions &options;
  Homes homes;
  llvm::DenseMap<Operation *, int64_t> order;
  llvm::DenseMap<Operation *, int> unitOf;
  llvm::DenseMap<Value, SmallVector<int>> producers;
  llvm::DenseMap<Value, std::unique_ptr<Placed>> placed, dense;
  llvm::MapVector<Operation *, SmallVector<int>> readers, writers;
};
} // namespace

bool fusion::isLibraryOp(Operation *op) {
  return isa<nn::MatmulOp, nn::ConvOp, nn::ConvGradInputOp,
             nn::ConvGradWeightOp, nn::MaxPoolOp, nn::MaxPoolGradOp,
             nn::AvgPoolOp, nn::AvgPoolGradOp, nn::GatherOp, nn::ScatterAddOp>(
             op) ||
         isAttention(op);
}

bool fusion::isAttention(Operation *op) {
  return isa<nn::AttentionOp, nn::AttentionGradQueryOp,
             nn::AttentionGradKeysOp>(op);
}

LogicalResult fusion::placeTask(TaskPlan &plan, const PlanOptions &options) {
  return Placer(plan, options).run();
}
