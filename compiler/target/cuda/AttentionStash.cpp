//===- AttentionStash.cpp - what attention keeps, without copies ----------===//
#include "compiler/target/cuda/AttentionStash.h"
#include "compiler/target/fusion/Plan.h"
#include "compiler/target/fusion/StashSlots.h"
#include "dialects/nn/EvenRows.h"
#include "dialects/nn/NN.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;
using nn::tensorType;

static bool isReordering(Operation *op) {
  return isa_and_nonnull<nn::ReshapeOp, nn::TransposeOp>(op);
}

//===----------------------------------------------------------------------===//
// Slices of one tensor
//===----------------------------------------------------------------------===//

namespace {
/// A slot that holds a slice of a tensor, behind views.
struct Part {
  StashSlot *slot;
  int64_t offset;
  nn::SliceOp slice;
  SmallVector<Operation *> views; ///< from the slice on

  int64_t end() const { return offset + nn::byteSize(type()); }
  Type type() const { return slot->stores.front().getX().getType(); }
};
using Parts = SmallVector<Part>;
} // namespace

/// Only attention, here or behind reorderings, which a slice allows.
static bool attentionReads(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    return isAttention(user) ||
           (isReordering(user) && attentionReads(user->getResult(0)));
  });
}

static std::optional<Part> partOf(StashSlot &slot, int64_t offset) {
  if (!slot.isPlain() || !llvm::all_of(slot.loads, [](pipe::LoadOp load) {
        return attentionReads(load.getY());
      }))
    return std::nullopt;
  Part part{&slot, offset, {}, {}};
  Value value = slot.stores.front().getX();
  while (isReordering(value.getDefiningOp())) {
    part.views.insert(part.views.begin(), value.getDefiningOp());
    value = value.getDefiningOp()->getOperand(0);
  }
  part.slice = value.getDefiningOp<nn::SliceOp>();
  if (!part.slice)
    return std::nullopt;
  return part;
}

/// Whether the slices, side by side along one axis, are the whole tensor.
static bool isWhole(Parts &parts) {
  auto whole = tensorType(parts.front().slice.getX());
  const int64_t rank = whole.getRank();
  int64_t axis = -1;
  for (int64_t d = 0; d < rank; ++d)
    if (tensorType(parts.front().slice.getY()).getDimSize(d) !=
        whole.getDimSize(d))
      axis = axis < 0 ? d : rank;
  if (axis < 0 || axis == rank)
    return false;
  llvm::sort(parts, [&](Part &a, Part &b) {
    return a.slice.getStarts()[axis] < b.slice.getStarts()[axis];
  });
  int64_t at = 0;
  for (Part &part : parts) {
    for (int64_t d = 0; d < rank; ++d)
      if (part.slice.getStrides()[d] != 1 ||
          part.slice.getStarts()[d] != (d == axis ? at : 0) ||
          (d != axis &&
           tensorType(part.slice.getY()).getDimSize(d) != whole.getDimSize(d)))
        return false;
    at += tensorType(part.slice.getY()).getDimSize(axis);
  }
  return at == whole.getDimSize(axis);
}

/// Whether the slots are one piece of memory, which the whole tensor fills.
static bool isOnePlace(Parts parts) {
  llvm::sort(parts,
             [](const Part &a, const Part &b) { return a.offset < b.offset; });
  for (size_t i = 1; i < parts.size(); ++i)
    if (parts[i - 1].end() != parts[i].offset)
      return false;
  return true;
}

/// Stores the tensor, and loads it for the slices.
static void join(Parts &parts) {
  Value whole = parts.front().slice.getX();
  int64_t offset = parts.front().offset;
  pipe::StoreOp last = parts.front().slot->stores.front();
  for (Part &part : parts) {
    offset = std::min(offset, part.offset);
    if (last->isBeforeInBlock(part.slot->stores.front()))
      last = part.slot->stores.front();
  }
  OpBuilder b(last);
  pipe::StoreOp::create(b, last.getLoc(), whole, last.getRegion(), offset,
                        /*accumulate=*/false);
  for (Part &part : parts) {
    for (pipe::LoadOp load : part.slot->loads) {
      b.setInsertionPoint(load);
      Value value = pipe::LoadOp::create(b, load.getLoc(), whole.getType(),
                                         load.getRegion(), offset);
      for (Operation *view : llvm::concat<Operation *>(
               SmallVector<Operation *>{part.slice}, part.views)) {
        Operation *copy = b.clone(*view);
        copy->setOperand(0, value);
        value = copy->getResult(0);
      }
      load.getY().replaceAllUsesWith(value);
      load.erase();
    }
    part.slot->stores.front().erase();
  }
}

static void joinSlices(ModuleOp stage) {
  StashSlots slots = stashSlots(stage);
  llvm::MapVector<std::pair<Value, StringRef>, Parts> sources;
  for (auto &[place, slot] : slots)
    if (auto part = partOf(slot, place.second))
      sources[{part->slice.getX(), place.first}].push_back(*part);
  for (auto &[source, parts] : sources)
    if (!nn::evenPitch(source.first) && isWhole(parts) && isOnePlace(parts))
      join(parts);
}

//===----------------------------------------------------------------------===//
// The order of a result
//===----------------------------------------------------------------------===//

/// The reorderings behind which the program goes on with the value, up to the
/// last transpose.
static SmallVector<Operation *> orderBehind(Value value) {
  SmallVector<Operation *> views;
  size_t length = 0;
  while (true) {
    Operation *next = nullptr;
    for (Operation *user : value.getUsers())
      if (isReordering(user) && (!next || user->isBeforeInBlock(next)))
        next = user;
    if (!next)
      break;
    views.push_back(next);
    if (isa<nn::TransposeOp>(next))
      length = views.size();
    value = next->getResult(0);
  }
  views.truncate(length);
  return views;
}

/// Gives back the operand of `view` for its result.
static Value undone(OpBuilder &b, Operation *view, Value result) {
  auto transpose = dyn_cast<nn::TransposeOp>(view);
  if (!transpose)
    return nn::ReshapeOp::create(b, view->getLoc(),
                                 view->getOperand(0).getType(), result);
  SmallVector<int64_t> back(transpose.getPermutation().size());
  for (auto [i, axis] : llvm::enumerate(transpose.getPermutation()))
    back[axis] = static_cast<int64_t>(i);
  return nn::TransposeOp::create(b, view->getLoc(), result, back);
}

/// Whether the elements can be addressed in the order before `views` where they
/// lie in the one behind.
static bool canUndo(ArrayRef<Operation *> views) {
  auto last = tensorType(views.back()->getResult(0));
  std::optional<Placement> at = Placement{0, 0, denseStrides(last.getShape())};
  for (Operation *view : llvm::reverse(views))
    if (at)
      at = backThroughView(view, *at);
  return at && at->strides.back() == 1;
}

/// Stores the value behind `views`, and loads that.
static void reorder(StashSlot &slot, ArrayRef<Operation *> views) {
  const Value value = storeBehind(slot, views);
  OpBuilder b(value.getContext());
  for (pipe::LoadOp load : slot.loads) {
    b.setInsertionPoint(load);
    Value again = pipe::LoadOp::create(b, load.getLoc(), value.getType(),
                                       load.getRegion(), load.getOffset());
    for (Operation *view : llvm::reverse(views))
      again = undone(b, view, again);
    load.getY().replaceAllUsesWith(again);
    load.erase();
  }
}

static void settleStage(ModuleOp stage) {
  joinSlices(stage);
  StashSlots slots = stashSlots(stage);
  for (auto &[place, slot] : slots) {
    if (!slot.isPlain())
      continue;
    Value value = slot.stores.front().getX();
    if (!value.getDefiningOp<nn::AttentionOp>())
      continue;
    SmallVector<Operation *> views = orderBehind(value);
    if (!views.empty() && canUndo(views))
      reorder(slot, views);
  }
}

void cuda::settleAttention(ModuleOp module) {
  bool isStage = true;
  for (auto stage : module.getOps<ModuleOp>()) {
    isStage = false;
    settleStage(stage);
  }
  if (isStage)
    settleStage(module);
}
