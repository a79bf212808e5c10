//===- Stash.cpp - the order of what tasks keep for each other ------------===//
#include "compiler/target/fusion/Expand.h"
#include "compiler/target/fusion/StashSlots.h"
#include "compiler/target/fusion/View.h"
#include "dialects/nn/NN.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;
using nn::tensorType;

bool StashSlot::isPlain() const {
  if (stores.size() != 1 || loads.empty())
    return false;
  pipe::StoreOp store = stores.front();
  return !store.getAccumulate() && !store.getPitch() &&
         llvm::all_of(loads, [&](pipe::LoadOp load) {
           return load.getY().getType() == store.getX().getType() &&
                  !load.getPitch();
         });
}

StashSlots fusion::stashSlots(ModuleOp stage) {
  StashSlots slots;
  auto slotOf = [&](StringRef region, int64_t offset) -> StashSlot * {
    if (region != "stash" && region != "wstash")
      return nullptr;
    return &slots[{region.str(), offset}];
  };
  stage.walk([&](Operation *op) {
    if (auto load = dyn_cast<pipe::LoadOp>(op)) {
      if (StashSlot *slot = slotOf(load.getRegion(), load.getOffset()))
        slot->loads.push_back(load);
    } else if (auto store = dyn_cast<pipe::StoreOp>(op)) {
      if (StashSlot *slot = slotOf(store.getRegion(), store.getOffset()))
        slot->stores.push_back(store);
    }
  });
  if (auto sent = stage->getAttrOfType<ArrayAttr>("pipe.sent"))
    for (auto place : sent.getAsRange<DictionaryAttr>())
      slots.erase({place.getAs<StringAttr>("region").str(),
                   place.getAs<IntegerAttr>("offset").getInt()});
  return slots;
}

/// The bijective views from a load to the first one that would need a copy, if
/// all uses of the value are the same such views; empty when there is none.
static SmallVector<Operation *> viewsToCopy(pipe::LoadOp load) {
  SmallVector<Operation *> views;
  Value value = load.getY();
  Placement at{0, 0, denseStrides(tensorType(value).getShape())};
  while (!value.use_empty()) {
    Operation *view = *value.user_begin();
    if (!isBijectiveView(view))
      return {};
    for (Operation *other : value.getUsers())
      if (other->getName() != view->getName() ||
          other->getAttrs() != view->getAttrs() ||
          other->getResultTypes() != view->getResultTypes())
        return {};
    views.push_back(view);
    auto through = throughView(view, at);
    if (!through)
      return views;
    // Several equal views: only the last may have several users of its own.
    if (!value.hasOneUse())
      return {};
    at = *through;
    value = view->getResult(0);
  }
  return {};
}

static bool sameViews(ArrayRef<Operation *> a, ArrayRef<Operation *> b) {
  return a.size() == b.size() && llvm::all_of(llvm::zip(a, b), [](auto pair) {
           auto [x, y] = pair;
           return x->getName() == y->getName() &&
                  x->getAttrs() == y->getAttrs() &&
                  x->getResultTypes() == y->getResultTypes();
         });
}

Value fusion::storeBehind(StashSlot &slot, ArrayRef<Operation *> views) {
  pipe::StoreOp store = slot.stores.front();
  OpBuilder b(store);
  Value value = store.getX();
  for (Operation *view : views) {
    Operation *copy = b.clone(*view);
    copy->setOperand(0, value);
    value = copy->getResult(0);
  }
  store.getXMutable().assign(value);
  return value;
}

/// Stores the value behind the views, and loads that.
static void reorder(StashSlot &slot, ArrayRef<Operation *> views) {
  const Value value = storeBehind(slot, views);
  OpBuilder b(value.getContext());
  for (pipe::LoadOp load : slot.loads) {
    Value last = load.getY();
    for (size_t i = 0; i + 1 < views.size(); ++i)
      last = last.user_begin()->getResult(0);
    b.setInsertionPoint(load);
    auto direct = pipe::LoadOp::create(b, load.getLoc(), value.getType(),
                                       load.getRegion(), load.getOffset());
    for (Operation *view : llvm::make_early_inc_range(last.getUsers())) {
      view->getResult(0).replaceAllUsesWith(direct);
      view->erase();
    }
    while (last != load.getY()) {
      Operation *view = last.getDefiningOp();
      last = view->getOperand(0);
      view->erase();
    }
    load.erase();
  }
}

void fusion::settleStash(ModuleOp stage) {
  StashSlots slots = stashSlots(stage);
  for (auto &[place, slot] : slots) {
    if (!slot.isPlain())
      continue;
    SmallVector<Operation *> views = viewsToCopy(slot.loads.front());
    if (!views.empty() && llvm::all_of(slot.loads, [&](pipe::LoadOp load) {
          return sameViews(viewsToCopy(load), views);
        }))
      reorder(slot, views);
  }
}
