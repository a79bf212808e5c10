//===- Group.cpp - ops that become one kernel -----------------------------===//
#include "compiler/target/fusion/Group.h"
#include "compiler/target/fusion/View.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;
using nn::tensorType;

DimList fusion::flatten(const ValueMap &map) {
  DimList all;
  for (const DimList &dims : map)
    all.append(dims.begin(), dims.end());
  return all;
}

bool fusion::isSplat(Value value) {
  auto constant = dyn_cast_or_null<nn::ConstantOp>(value.getDefiningOp());
  return constant && isa<SplatElementsAttr>(constant.getValue());
}

bool fusion::isImmediate(Value value) {
  return isa_and_nonnull<nn::IotaOp>(value.getDefiningOp()) || isSplat(value);
}

bool fusion::isGenerated(Operation *op) {
  if (isView(op) ||
      isImmediate(op->getNumResults() ? op->getResult(0) : Value()))
    return false;
  return op->hasTrait<nn::Elementwise>() || isa<nn::ReduceOp>(op);
}

Value fusion::viewBase(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isView(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

//===----------------------------------------------------------------------===//
// Groups of one
//===----------------------------------------------------------------------===//

/// Loop dimensions for a shape: one for every size other than 1.
static ValueMap freshMap(Group &group, ArrayRef<int64_t> shape) {
  ValueMap map(shape.size());
  for (auto [dims, size] : llvm::zip_equal(map, shape))
    if (size != 1) {
      dims.push_back(group.extents.size());
      group.extents.push_back(size);
    }
  return map;
}

Group Group::ofValue(Value value) {
  Group group;
  group.maps[value] = freshMap(group, tensorType(value).getShape());
  return group;
}

Group Group::ofOp(Operation *op) {
  Group group;
  group.ops.insert(op);
  ValueMap map =
      freshMap(group, tensorType(op->getNumOperands() ? op->getOperand(0)
                                                      : op->getResult(0))
                          .getShape());
  for (Value operand : op->getOperands())
    if (!isSplat(operand))
      group.maps[operand] = map;
  if (auto reduce = dyn_cast<nn::ReduceOp>(op))
    for (int64_t axis : reduce.getAxes())
      map[axis].clear();
  for (Value result : op->getResults())
    group.maps[result] = map;
  return group;
}

bool Group::computes(Value value) const {
  return views.contains(value) || ops.contains(value.getDefiningOp());
}

//===----------------------------------------------------------------------===//
// The nest
//===----------------------------------------------------------------------===//

namespace {
/// The loop dimensions of a reduction's operand, parted by what it does to
/// them.
struct ReductionDims {
  DimList all, reduced, kept;
  /// The innermost run of equal fate.
  DimList inner;
  bool innerReduced = false;

  ReductionDims(const Group &group, nn::ReduceOp op) {
    const ValueMap &map = group.maps.find(op.getX())->second;
    for (auto [axis, dims] : llvm::enumerate(map)) {
      bool isReduced = llvm::is_contained(op.getAxes(), axis);
      if (!dims.empty() && isReduced != innerReduced) {
        innerReduced = isReduced;
        inner.clear();
      }
      inner.append(dims.begin(), dims.end());
      all.append(dims.begin(), dims.end());
      (isReduced ? reduced : kept).append(dims.begin(), dims.end());
    }
  }
};
} // namespace

static bool sameSet(ArrayRef<int> a, ArrayRef<int> b) {
  return a.size() == b.size() &&
         llvm::all_of(a, [&](int d) { return llvm::is_contained(b, d); });
}

static DimList without(ArrayRef<int> all, ArrayRef<int> some) {
  DimList rest;
  for (int d : all)
    if (!llvm::is_contained(some, d))
      rest.push_back(d);
  return rest;
}

/// Adds one reduction to the nest, or says that it does not fit.
static bool addReduction(const Group &group, nn::ReduceOp op, Nest &nest) {
  ReductionDims dims(group, op);
  if (dims.all.size() != group.extents.size())
    return false;
  if (dims.innerReduced) {
    DimList walk = without(dims.reduced, dims.inner);
    if (!nest.rowReductions.empty())
      return nest.rowReductions.push_back(op), nest.outer == dims.kept &&
                                                   nest.walk == walk &&
                                                   nest.lane == dims.inner;
    nest.outer = dims.kept;
    nest.walk = walk;
    nest.lane = dims.inner;
    nest.rowReductions.push_back(op);
    return true;
  }
  DimList outer = without(dims.kept, dims.inner);
  if (!nest.columnReductions.empty())
    return nest.columnReductions.push_back(op),
           nest.outer == outer && nest.rows == dims.reduced;
  if (!nest.rowReductions.empty()) {
    // Rows of the row reductions are the rows to be summed.
    if (!outer.empty() || nest.outer != dims.reduced)
      return false;
    std::swap(nest.rows, nest.outer);
  } else {
    nest.outer = outer;
    nest.rows = dims.reduced;
    nest.lane = dims.inner;
  }
  nest.columnReductions.push_back(op);
  return true;
}

/// The innermost run that a row reduction walks must be one run for every value
/// it meets: its lanes, and so its bits, depend on the reduced shape alone.
static bool keepsRun(const Group &group, Value value, ArrayRef<int> run) {
  DimList dims = flatten(group.maps.find(value)->second);
  const auto *at = llvm::find(dims, run.front());
  if (at == dims.end())
    return llvm::none_of(run,
                         [&](int d) { return llvm::is_contained(dims, d); });
  return static_cast<size_t>(dims.end() - at) >= run.size() &&
         llvm::equal(run, ArrayRef<int>(at, run.size()));
}

std::optional<Nest> fusion::nestOf(const Group &group) {
  Nest nest;
  // Row reductions first: column reductions adapt to them.
  for (bool rows : {true, false})
    for (Operation *op : group.ops)
      if (auto reduce = dyn_cast<nn::ReduceOp>(op))
        if (ReductionDims(group, reduce).innerReduced == rows &&
            !addReduction(group, reduce, nest))
          return std::nullopt;
  if (nest.rowReductions.empty() && nest.columnReductions.empty()) {
    const ValueMap *widest = nullptr;
    for (const auto &[value, map] : group.maps)
      if (flatten(map).size() == group.extents.size())
        widest = &map;
    if (!widest)
      return std::nullopt;
    nest.outer = flatten(*widest);
  }
  DimList rowDims = nest.outer;
  rowDims.append(nest.rows);
  bool reduces = !nest.rowReductions.empty() || !nest.columnReductions.empty();
  for (Operation *op : group.ops) {
    if (isa<nn::ReduceOp>(op))
      continue;
    DimList dims = flatten(group.maps.find(op->getResult(0))->second);
    if (dims.size() != group.extents.size() &&
        !(reduces && sameSet(dims, rowDims)))
      return std::nullopt;
  }
  // Sums over rows are complete only after the kernel.
  for (nn::ReduceOp op : nest.columnReductions)
    for (Operation *user : op.getY().getUsers())
      if (group.ops.contains(user) ||
          (isView(user) && group.views.contains(user->getResult(0))))
        return std::nullopt;
  if (!nest.rowReductions.empty() && nest.lane.size() > 1)
    for (const auto &[value, map] : group.maps)
      if (!keepsRun(group, value, nest.lane))
        return std::nullopt;
  return nest;
}

int Phases::of(Value value) {
  auto it = known.find(value);
  if (it != known.end())
    return it->second;
  int phase = 0;
  if (group.computes(value)) {
    Operation *op = value.getDefiningOp();
    for (Value operand : op->getOperands())
      phase = std::max(phase, of(operand));
    if (group.ops.contains(op) && isa<nn::ReduceOp>(op))
      ++phase;
  }
  return known[value] = phase;
}
