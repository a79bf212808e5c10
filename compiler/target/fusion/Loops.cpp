//===- Loops.cpp - the loops of a kernel and its strides ------------------===//
#include "compiler/target/fusion/Plan.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;

int64_t KernelPlan::rowCount() const {
  int64_t n = 1;
  for (int64_t size : outer)
    n *= size;
  for (int64_t size : rows)
    n *= size;
  return n;
}

bool KernelPlan::isFlat() const {
  return outer.empty() && rows.empty() && walk.empty() &&
         nest.rowReductions.empty() && nest.columnReductions.empty();
}

namespace {
/// One kind of loop while dimensions are being joined.
struct Level {
  DimList dims;
  SmallVector<int64_t> sizes;
};
using Strides = SmallVector<int64_t>; // by loop dimension id
} // namespace

SmallVector<int64_t> fusion::loopStrides(const Group &group, Value value,
                                         ArrayRef<int64_t> strides) {
  const ValueMap &map = group.maps.find(value)->second;
  Strides result(group.extents.size(), 0);
  for (auto [dims, stride] : llvm::zip_equal(map, strides)) {
    int64_t step = stride;
    for (int d : llvm::reverse(dims)) {
      result[d] = step;
      step *= group.extents[d];
    }
  }
  return result;
}

/// Joins neighbours of a level that every access walks with one stride.
static void join(Level &level, MutableArrayRef<Strides *> accesses) {
  for (size_t i = level.dims.size(); i-- > 1;) {
    int slow = level.dims[i - 1], fast = level.dims[i];
    int64_t size = level.sizes[i];
    if (!llvm::all_of(accesses, [&](Strides *s) {
          return (*s)[slow] == (*s)[fast] * size;
        }))
      continue;
    for (Strides *s : accesses)
      (*s)[slow] = (*s)[fast];
    level.sizes[i - 1] *= size;
    level.sizes.erase(level.sizes.begin() + i);
    level.dims.erase(level.dims.begin() + i);
  }
}

static Level levelOf(const Group &group, const DimList &dims) {
  Level level{dims, {}};
  for (int d : dims)
    level.sizes.push_back(group.extents[d]);
  return level;
}

Misfits fusion::settleLoops(KernelPlan &plan) {
  const Group &group = *plan.group;
  llvm::MapVector<Value, Strides> leaves;
  for (auto &[value, leaf] : plan.leaves)
    leaves[value] = loopStrides(group, value, leaf.place.strides);
  std::vector<Strides> targets;
  for (Target &target : plan.targets)
    targets.push_back(loopStrides(group, target.value, target.place.strides));
  std::vector<Strides> spills;
  for (Target &spill : plan.spills)
    spills.push_back(loopStrides(group, spill.value, spill.place.strides));
  SmallVector<Strides *> accesses;
  for (auto &[value, strides] : leaves)
    accesses.push_back(&strides);
  for (Strides &strides : targets)
    accesses.push_back(&strides);
  for (Strides &strides : spills)
    accesses.push_back(&strides);

  // The run of a row reduction is one loop whatever the operands look like.
  bool reducesRows = !plan.nest.rowReductions.empty();
  if (reducesRows && plan.nest.lane.size() > 1) {
    auto breaksRun = [&](Strides strides) {
      Level lane = levelOf(group, plan.nest.lane);
      SmallVector<Strides *, 1> alone = {&strides};
      join(lane, alone);
      return lane.dims.size() > 1;
    };
    Misfits misfits;
    for (auto &[value, strides] : leaves)
      if (breaksRun(strides))
        misfits.leaves.push_back(value);
    for (auto [i, strides] : llvm::enumerate(targets))
      if (breaksRun(strides))
        misfits.targets.push_back(i);
    if (!misfits.leaves.empty() || !misfits.targets.empty())
      return misfits;
  }

  Level outer = levelOf(group, plan.nest.outer),
        rows = levelOf(group, plan.nest.rows),
        walk = levelOf(group, plan.nest.walk),
        lane = levelOf(group, plan.nest.lane);
  join(outer, accesses);
  join(rows, accesses);
  join(walk, accesses);
  join(lane, accesses);
  if (lane.dims.empty() && walk.dims.empty() && plan.nest.rows.empty() &&
      !reducesRows && !outer.dims.empty()) {
    lane = Level{{outer.dims.back()}, {outer.sizes.back()}};
    outer.dims.pop_back();
    outer.sizes.pop_back();
  }
  while (lane.dims.size() > 1) {
    walk.dims.push_back(lane.dims.front());
    walk.sizes.push_back(lane.sizes.front());
    lane.dims.erase(lane.dims.begin());
    lane.sizes.erase(lane.sizes.begin());
  }

  plan.outer.assign(outer.sizes);
  plan.rows.assign(rows.sizes);
  plan.walk.assign(walk.sizes);
  plan.lane = lane.sizes.empty() ? 1 : lane.sizes.front();
  DimList loops = outer.dims;
  for (const Level *level : {&rows, &walk, &lane})
    loops.append(level->dims);
  auto inOrder = [&](const Strides &strides) {
    SmallVector<int64_t> result;
    for (int d : loops)
      result.push_back(strides[d]);
    if (lane.dims.empty())
      result.push_back(0);
    return result;
  };
  plan.leafStrides.clear();
  for (auto &[value, strides] : leaves)
    plan.leafStrides[value] = inOrder(strides);
  plan.targetStrides.clear();
  for (Strides &strides : targets)
    plan.targetStrides.push_back(inOrder(strides));
  plan.spillStrides.clear();
  for (Strides &strides : spills)
    plan.spillStrides.push_back(inOrder(strides));
  return {};
}
