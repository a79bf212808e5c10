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

namespace {
/// How each operand is walked, by loop dimension.
struct Accesses {
  llvm::MapVector<Value, Strides> leaves;
  std::vector<Strides> targets, spills;

  SmallVector<Strides *> all() {
    SmallVector<Strides *> list;
    for (auto &[value, strides] : leaves)
      list.push_back(&strides);
    for (auto *more : {&targets, &spills})
      for (Strides &strides : *more)
        list.push_back(&strides);
    return list;
  }
};

struct Loops {
  Level outer, rows, walk, lane;
};
} // namespace

static Accesses accessesOf(const KernelPlan &plan) {
  Accesses accesses;
  for (auto &[value, leaf] : plan.leaves)
    accesses.leaves[value] =
        loopStrides(*plan.group, value, leaf.place.strides);
  for (const Target &target : plan.targets)
    accesses.targets.push_back(
        loopStrides(*plan.group, target.value, target.place.strides));
  for (const Target &spill : plan.spills)
    accesses.spills.push_back(
        loopStrides(*plan.group, spill.value, spill.place.strides));
  return accesses;
}

/// The run of a row reduction is one loop whatever the operands look like: the
/// operands that would break it up.
static Misfits misfitsOf(const KernelPlan &plan, const Accesses &accesses) {
  Misfits misfits;
  if (plan.nest.rowReductions.empty() || plan.nest.lane.size() <= 1)
    return misfits;
  auto breaksRun = [&](Strides strides) {
    Level lane = levelOf(*plan.group, plan.nest.lane);
    SmallVector<Strides *, 1> alone = {&strides};
    join(lane, alone);
    return lane.dims.size() > 1;
  };
  for (auto &[value, strides] : accesses.leaves)
    if (breaksRun(strides))
      misfits.leaves.push_back(value);
  for (auto [i, strides] : llvm::enumerate(accesses.targets))
    if (breaksRun(strides))
      misfits.targets.push_back(i);
  return misfits;
}

/// The nest with neighbours joined and one loop at most in the lane.
static Loops joinLoops(const KernelPlan &plan,
                       MutableArrayRef<Strides *> accesses) {
  const Nest &nest = plan.nest;
  Loops loops{levelOf(*plan.group, nest.outer), levelOf(*plan.group, nest.rows),
              levelOf(*plan.group, nest.walk), levelOf(*plan.group, nest.lane)};
  auto &[outer, rows, walk, lane] = loops;
  for (Level *level : {&outer, &rows, &walk, &lane})
    join(*level, accesses);
  if (lane.dims.empty() && walk.dims.empty() && nest.rows.empty() &&
      nest.rowReductions.empty() && !outer.dims.empty()) {
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
  return loops;
}

Misfits fusion::settleLoops(KernelPlan &plan) {
  Accesses accesses = accessesOf(plan);
  Misfits misfits = misfitsOf(plan, accesses);
  if (!misfits.leaves.empty() || !misfits.targets.empty())
    return misfits;
  SmallVector<Strides *> all = accesses.all();
  const Loops loops = joinLoops(plan, all);
  plan.outer.assign(loops.outer.sizes);
  plan.rows.assign(loops.rows.sizes);
  plan.walk.assign(loops.walk.sizes);
  plan.lane = loops.lane.sizes.empty() ? 1 : loops.lane.sizes.front();

  auto inOrder = [&](const Strides &strides) {
    SmallVector<int64_t> result;
    for (const Level *level :
         {&loops.outer, &loops.rows, &loops.walk, &loops.lane})
      for (int d : level->dims)
        result.push_back(strides[d]);
    if (loops.lane.dims.empty())
      result.push_back(0);
    return result;
  };
  plan.leafStrides.clear();
  for (auto &[value, strides] : accesses.leaves)
    plan.leafStrides[value] = inOrder(strides);
  plan.targetStrides.clear();
  for (const Strides &strides : accesses.targets)
    plan.targetStrides.push_back(inOrder(strides));
  plan.spillStrides.clear();
  for (const Strides &strides : accesses.spills)
    plan.spillStrides.push_back(inOrder(strides));
  return {};
}
