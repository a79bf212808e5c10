//===- Homes.cpp - where results are written ------------------------------===//
//
// A result is written where it is wanted: into the region of a pipe.store, into
// its part of a concat or pad, or in the order that a later reshape needs.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/fusion/Overlaps.h"
#include "compiler/target/fusion/Plan.h"
#include "dialects/nn/EvenRows.h"
#include "dialects/pipe/Pipe.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;
using nn::tensorType;

/// Elements of a product that is computed apart from where it is added, at
/// least; and those of the narrowest type that fill 16 bytes.
constexpr int64_t kLeastApart = 1 << 16, kEvenSize = 8;

int64_t fusion::elementBytes(Type element) {
  return llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
}

bool fusion::isMatrixPlace(ArrayRef<int64_t> shape, const Placement &place) {
  size_t rank = shape.size();
  if (rank < 2 || llvm::is_contained(shape, 0))
    return true;
  int64_t m = shape[rank - 2], n = shape[rank - 1];
  int64_t row = place.strides[rank - 2], column = place.strides[rank - 1];
  auto fits = [](int64_t outer, int64_t outerStride, int64_t inner,
                 int64_t innerStride) {
    return (inner == 1 || innerStride == 1) &&
           (outer == 1 || outerStride >= std::max<int64_t>(inner, 1));
  };
  if (!fits(m, row, n, column) && !fits(n, column, m, row))
    return false;
  return llvm::all_of(ArrayRef(place.strides).drop_back(2),
                      [](int64_t s) { return s >= 0; });
}

int fusion::batchLoops(ArrayRef<int64_t> shape, ArrayRef<Placement> places) {
  int loops = 0, last = -1;
  for (int i = 0, n = static_cast<int>(shape.size()) - 2; i < n; ++i) {
    if (shape[i] == 1)
      continue;
    bool joins = last >= 0 && llvm::all_of(places, [&](const Placement &at) {
                   return at.strides[last] == at.strides[i] * shape[i];
                 });
    loops += !joins;
    last = i;
  }
  return loops;
}

Placement fusion::partPlace(Operation *op, unsigned index,
                            const Placement &whole) {
  Placement part = whole;
  if (auto concat = dyn_cast<nn::ConcatOp>(op)) {
    int64_t before = 0;
    for (unsigned i = 0; i < index; ++i)
      before += tensorType(op->getOperand(i)).getDimSize(concat.getAxis());
    part.offset += before * whole.strides[concat.getAxis()];
    return part;
  }
  auto pad = cast<nn::PadOp>(op);
  for (size_t d = 0; d < part.strides.size(); ++d) {
    part.offset += pad.getLow()[d] * whole.strides[d];
    part.strides[d] = whole.strides[d] * (pad.getInterior()[d] + 1);
  }
  return part;
}

namespace {
class HomeFinder {
public:
  HomeFinder(TaskPlan &plan, bool evenRows) : plan(plan), evenRows(evenRows) {
    for (auto [i, group] : llvm::enumerate(plan.groups))
      for (Operation *op : group.ops)
        groupOf[op] = i;
    int64_t position = 0;
    for (Operation &op : plan.func.getBody().front()) {
      order[&op] = position++;
      if (isa<pipe::LoadOp>(op))
        loads.push_back(&op);
      else if (isa<pipe::StoreOp>(op))
        stores.push_back(&op);
    }
    loaded.emplace(loads), stored.emplace(stores);
  }

  Homes run() {
    homes.targets.resize(plan.groups.size());
    for (Operation *store : stores)
      storeFromGroup(cast<pipe::StoreOp>(store));
    for (Operation &op : llvm::reverse(plan.func.getBody().front()))
      if (groupOf.contains(&op) || ownsResults(&op))
        for (Value result : op.getResults())
          findHome(result);
    return std::move(homes);
  }

private:
  static bool ownsResults(Operation *op) {
    return op->getNumResults() && !isView(op) && !isGenerated(op) &&
           !isImmediate(op->getResult(0)) &&
           !isa<pipe::LoadOp, pipe::ScalarOp, nn::ConstantOp>(op);
  }

  Placement regionPlace(pipe::StoreOp store) {
    Buffer buffer;
    buffer.kind = Buffer::Region;
    buffer.region = pipe::regionIndex(store.getRegion());
    buffer.offset = store.getOffset();
    buffer.bytes = store.bytes();
    buffer.leaveGaps(tensorType(store.getX()), store.getPitch());
    plan.buffers.push_back(buffer);
    return {static_cast<int>(plan.buffers.size()) - 1, 0, store.strides()};
  }

  Placement fresh(Value value) {
    Buffer buffer;
    buffer.bytes = nn::byteSize(value.getType());
    plan.buffers.push_back(buffer);
    const int number = static_cast<int>(plan.buffers.size()) - 1;
    if (int64_t pitch = evenRows ? nn::evenPitch(value) : 0) {
      Placement at{number, 0, pipe::placeStrides(value.getType(), pitch)};
      if (takesPitch(value) && readersTake(value, at)) {
        plan.buffers[number].bytes = pipe::placeBytes(value.getType(), pitch);
        plan.buffers[number].leaveGaps(tensorType(value), pitch);
        return at;
      }
    }
    return {number, 0, denseStrides(tensorType(value).getShape())};
  }

  /// The loops of a reduction of several dimensions walk them as one.
  bool isOneRun(int group) {
    const Nest nest = *nestOf(plan.groups[group]);
    return nest.rowReductions.empty() || nest.lane.size() <= 1;
  }

  bool takesPitch(Value value) {
    auto group = groupOf.find(value.getDefiningOp());
    return group != groupOf.end() ? isOneRun(group->second)
                                  : isa<nn::MatmulOp>(value.getDefiningOp());
  }

  /// Whether all who read the value at `at` can do so there.
  bool readersTake(Value value, const Placement &at) {
    return llvm::all_of(value.getUsers(), [&](Operation *user) {
      if (auto group = groupOf.find(user); group != groupOf.end())
        return isOneRun(group->second);
      if (isView(user)) {
        auto through = throughView(user, at);
        return through && readersTake(user->getResult(0), *through);
      }
      return isa<pipe::StoreOp>(user) ||
             (isa<nn::MatmulOp>(user) &&
              isMatrixPlace(tensorType(value).getShape(), at));
    });
  }

  bool overlapsAnotherStore(pipe::StoreOp store) {
    return llvm::any_of(stored->with(store), [&](Operation *other) {
      return other != store.getOperation();
    });
  }

  /// Nothing else in the task reads or writes what the store writes.
  bool isAlone(pipe::StoreOp store) {
    return !overlapsAnotherStore(store) && loaded->with(store).empty();
  }

  /// The group overwrites, element by element, what only it reads.
  bool isInPlaceUpdate(pipe::StoreOp store, int index, Value base,
                       const Placement &at) {
    const Group &group = plan.groups[index];
    if (overlapsAnotherStore(store) ||
        llvm::any_of(group.ops,
                     [](Operation *op) { return isa<nn::ReduceOp>(op); }))
      return false;
    auto target = loopStrides(group, base, at.strides);
    for (Operation *op : loaded->with(store)) {
      auto load = cast<pipe::LoadOp>(op);
      if (order[op] > order[store] || load.getOffset() != store.getOffset() ||
          load.getY().getType() != store.getX().getType())
        return false;
      Placement source{0, 0, load.strides()};
      if (!readsOnlyAt(group, load.getY(), source, target))
        return false;
    }
    return true;
  }

  bool readsOnlyAt(const Group &group, Value value, const Placement &at,
                   ArrayRef<int64_t> target) {
    for (Operation *user : value.getUsers()) {
      if (isView(user)) {
        auto through = throughView(user, at);
        if (!through || through->offset != 0 ||
            !readsOnlyAt(group, user->getResult(0), *through, target))
          return false;
      } else if (!group.ops.contains(user) ||
                 ArrayRef(loopStrides(group, value, at.strides)) != target) {
        return false;
      }
    }
    return true;
  }

  /// A store of a value that a group evaluates becomes one of its targets.
  void storeFromGroup(pipe::StoreOp store) {
    Placement at = regionPlace(store);
    Value base = store.getX();
    while (!groupOf.contains(base.getDefiningOp()) && base.getDefiningOp() &&
           isBijectiveView(base.getDefiningOp())) {
      auto back = backThroughView(base.getDefiningOp(), at);
      if (!back)
        return;
      at = *back;
      base = base.getDefiningOp()->getOperand(0);
    }
    auto group = groupOf.find(base.getDefiningOp());
    if (!base.getDefiningOp() || group == groupOf.end() || !walksWell(base, at))
      return;
    if (!isAlone(store) && !isInPlaceUpdate(store, group->second, base, at))
      return;
    homes.targets[group->second].push_back({base, at, store.getAccumulate()});
    homes.stored.insert(store);
  }

  /// The last dimension of more than one element is contiguous.
  static bool walksWell(Value value, const Placement &at) {
    ArrayRef<int64_t> shape = tensorType(value).getShape();
    for (size_t d = shape.size(); d-- > 0;)
      if (shape[d] != 1)
        return at.strides[d] == 1;
    return true;
  }

  bool accepts(Value value, const Placement &at) {
    Operation *op = value.getDefiningOp();
    if (groupOf.contains(op))
      return walksWell(value, at);
    if (isa<nn::MatmulOp>(op)) {
      ArrayRef<int64_t> shape = tensorType(value).getShape();
      return isMatrixPlace(shape, at) &&
             batchLoops(shape, at) <= kMostBatchLoops;
    }
    if (isa<nn::ConcatOp, nn::PadOp>(op))
      return true;
    if (isAttention(op)) // its rows, with numbers of any other stride
      return tensorType(value).getShape().back() == 1 || at.strides.back() == 1;
    return ArrayRef(at.strides) ==
           ArrayRef(denseStrides(tensorType(value).getShape()));
  }

  SmallVector<OpOperand *> usesInOrder(Value value) {
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : value.getUses())
      uses.push_back(&use);
    llvm::sort(uses, [&](OpOperand *a, OpOperand *b) {
      return std::pair(order[a->getOwner()], a->getOperandNumber()) <
             std::pair(order[b->getOwner()], b->getOperandNumber());
    });
    return uses;
  }

  /// A place that some use of `value` wants it in; `use` becomes that use.
  std::optional<Placement> wanted(Value value, OpOperand *&use) {
    for (OpOperand *candidate : usesInOrder(value)) {
      Operation *user = candidate->getOwner();
      if (auto store = dyn_cast<pipe::StoreOp>(user)) {
        if (!homes.stored.contains(user) && !store.getAccumulate() &&
            isAlone(store)) {
          use = candidate;
          return regionPlace(store);
        }
      } else if (isa<nn::ConcatOp, nn::PadOp>(user)) {
        if (!homes.inPlace.contains(candidate)) {
          use = candidate;
          return partPlace(user, candidate->getOperandNumber(),
                           homes.place[user->getResult(0)]);
        }
      } else if (isBijectiveView(user)) {
        if (auto at = wanted(user->getResult(0), use))
          if (auto back = backThroughView(user, *at))
            return back;
      }
    }
    return std::nullopt;
  }

  /// An order of elements in which a later reshape is free.
  std::optional<Placement> reshapable(Value value, const Placement &at) {
    for (OpOperand *use : usesInOrder(value)) {
      Operation *user = use->getOwner();
      if (!isBijectiveView(user))
        continue;
      Value result = user->getResult(0);
      auto through = throughView(user, at);
      auto better =
          through ? reshapable(result, *through)
                  : Placement{at.buffer, 0,
                              denseStrides(tensorType(result).getShape())};
      if (better)
        if (auto back = backThroughView(user, *better))
          return back;
    }
    return std::nullopt;
  }

  /// Whether someone reads the value from memory.
  bool isRead(Value value, int group) {
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      if (auto it = groupOf.find(user); it != groupOf.end())
        return it->second != group;
      if (isView(user))
        return isRead(user->getResult(0), group);
      return !homes.stored.contains(user);
    });
  }

  /// A large product that is added to uneven rows at `at`, and could have gaps
  /// elsewhere, as its second operand has: what a sum of it costs there is less
  /// than what the product loses here.
  bool isBetterApart(Value value, const Placement &at) {
    auto matmul = dyn_cast<nn::MatmulOp>(value.getDefiningOp());
    auto type = tensorType(value);
    const int64_t n = type.getShape().back();
    if (!evenRows || !matmul || matmul.getTransposeB() ||
        type.getNumElements() < kLeastApart || at.strides.back() != 1 ||
        nn::evenPitch(tensorType(matmul.getB())) == 0)
      return false;
    // In a message or a weight of f32 rows are dense.
    Operation *operand = matmul.getB().getDefiningOp();
    while (operand && isView(operand))
      operand = operand->getOperand(0).getDefiningOp();
    if (auto load = dyn_cast_or_null<pipe::LoadOp>(operand);
        load && !load.getPitch())
      return false;
    const int64_t even =
        std::min(nn::evenPitch(type), nn::evenPitch(tensorType(matmul.getB())));
    const Placement apart{-1, 0, pipe::placeStrides(type, nn::evenPitch(type))};
    return even / kEvenSize * kEvenSize > n && readersTake(value, apart);
  }

  /// The accumulating store that is the only use of a contraction.
  pipe::StoreOp onlyAccumulation(Value value, Placement &at) {
    if (!isa<nn::MatmulOp, nn::ConvGradWeightOp, nn::ScatterAddOp>(
            value.getDefiningOp()))
      return {};
    SmallVector<Operation *> views;
    Value last = value;
    while (last.hasOneUse() && isBijectiveView(*last.user_begin())) {
      views.push_back(*last.user_begin());
      last = views.back()->getResult(0);
    }
    auto store = last.hasOneUse() ? dyn_cast<pipe::StoreOp>(*last.user_begin())
                                  : nullptr;
    if (!store || !store.getAccumulate() || !isAlone(store))
      return {};
    at = regionPlace(store);
    for (Operation *view : llvm::reverse(views)) {
      auto back = backThroughView(view, at);
      if (!back)
        return {};
      at = *back;
    }
    return accepts(value, at) && !isBetterApart(value, at) ? store
                                                           : pipe::StoreOp();
  }

  void findHome(Value value) {
    auto group = groupOf.find(value.getDefiningOp());
    int index = group == groupOf.end() ? -1 : group->second;
    if (!isRead(value, index))
      return;
    if (index >= 0) {
      for (const Target &target : homes.targets[index])
        if (target.value == value && !target.accumulate) {
          homes.place[value] = target.place;
          return;
        }
    }
    Placement at;
    if (auto store = onlyAccumulation(value, at)) {
      homes.place[value] = at;
      homes.accumulated.insert(value);
      homes.stored.insert(store);
      return;
    }
    OpOperand *use = nullptr;
    if (auto place = wanted(value, use); place && accepts(value, *place)) {
      homes.place[value] = *place;
      if (isa<pipe::StoreOp>(use->getOwner()))
        homes.stored.insert(use->getOwner());
      else
        homes.inPlace.insert(use);
    } else {
      Placement dense = fresh(value);
      auto better = reshapable(value, dense);
      homes.place[value] = better && accepts(value, *better) ? *better : dense;
    }
    if (index >= 0)
      homes.targets[index].push_back({value, homes.place[value], false});
  }

  TaskPlan &plan;
  bool evenRows;
  Homes homes;
  llvm::DenseMap<Operation *, int> groupOf;
  llvm::DenseMap<Operation *, int64_t> order;
  SmallVector<Operation *> loads, stores;
  std::optional<Overlaps> loaded, stored;
};
} // namespace

Homes fusion::chooseHomes(TaskPlan &plan, bool evenRows) {
  return HomeFinder(plan, evenRows).run();
}
