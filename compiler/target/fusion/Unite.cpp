//===- Unite.cpp - two groups as one --------------------------------------===//
//
// Loop dimensions of the two are identified where a value belongs to both.
// Reshapes may split a dimension in two; a dimension never meets another one of
// its own group.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/fusion/Group.h"
#include "compiler/target/fusion/View.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;
using nn::tensorType;

namespace {
class Uniter {
public:
  Uniter(const Group &a, const Group &b) {
    add(a, first);
    add(b, second);
  }

  std::optional<Group> run() {
    // Scalars of one task are all at one point.
    bool linked = extents.empty();
    if (!linkReads(first, second, linked) || !linkReads(second, first, linked))
      return std::nullopt;
    // What both read must be at the same point for both.
    for (auto &[value, map] : first.maps) {
      auto other = second.maps.find(value);
      if (other == second.maps.end())
        continue;
      if (!identify(value))
        return std::nullopt;
      linked = true;
    }
    if (!linked)
      return std::nullopt;
    return merged();
  }

private:
  /// One side; its maps name dimensions of the common list.
  struct Side {
    llvm::MapVector<Value, ValueMap> maps;
    const Group *group = nullptr;
    SmallVector<Value> newViews;
  };

  void add(const Group &group, Side &side) {
    side.group = &group;
    int shift = extents.size();
    extents.append(group.extents);
    sides.append(group.extents.size(), &side == &first ? 1 : 2);
    for (const auto &[value, map] : group.maps) {
      ValueMap shifted = map;
      for (DimList &dims : shifted)
        for (int &d : dims)
          d += shift;
      side.maps[value] = shifted;
    }
  }

  /// Links every operand of `reader` that is, or views, a result of `writer`.
  bool linkReads(Side &reader, Side &writer, bool &linked) {
    for (Operation *op : reader.group->ops)
      for (Value operand : op->getOperands()) {
        if (reader.group->computes(operand) || isSplat(operand))
          continue;
        Value base = operand;
        while (!writer.group->ops.contains(base.getDefiningOp()) &&
               base.getDefiningOp() && isView(base.getDefiningOp()))
          base = base.getDefiningOp()->getOperand(0);
        if (!writer.group->ops.contains(base.getDefiningOp()))
          continue;
        for (Value value = operand; value != base;
             value = value.getDefiningOp()->getOperand(0)) {
          if (!traceView(reader, value))
            return false;
          reader.newViews.push_back(value);
        }
        linked = true;
      }
    return true;
  }

  /// Gives the operand of the view `value` its map on this side.
  bool traceView(Side &side, Value value) {
    Operation *view = value.getDefiningOp();
    Value source = view->getOperand(0);
    auto shape = tensorType(source).getShape();
    auto to = tensorType(value).getShape();
    if (isa<nn::SliceOp, nn::ReverseOp>(view) || llvm::is_contained(shape, 0) ||
        llvm::is_contained(to, 0))
      return false;
    std::optional<ValueMap> map;
    if (isa<nn::ReshapeOp>(view)) {
      map = reshaped(side.maps.find(value)->second, shape);
      if (!map)
        return false;
    } else {
      map = ValueMap(shape.size());
      const ValueMap &from = side.maps.find(value)->second;
      auto transpose = dyn_cast<nn::TransposeOp>(view);
      for (size_t d = 0; d < to.size(); ++d) {
        if (transpose)
          (*map)[transpose.getPermutation()[d]] = from[d];
        else if (shape[d] == to[d])
          (*map)[d] = from[d];
      }
    }
    auto known = side.maps.find(source);
    if (known == side.maps.end()) {
      side.maps[source] = *map;
      return true;
    }
    return known->second == *map;
  }

  /// The same loop dimensions dealt out to the dimensions of `shape`, innermost
  /// first; a dimension that belongs to two of them is split.
  std::optional<ValueMap> reshaped(const ValueMap &map,
                                   ArrayRef<int64_t> shape) {
    DimList rest = flatten(map);
    ValueMap result(shape.size());
    for (size_t d = shape.size(); d-- > 0;) {
      int64_t wanted = shape[d];
      while (wanted > 1) {
        if (rest.empty())
          return std::nullopt;
        int dim = rest.back();
        int64_t size = extents[dim];
        if (wanted % size == 0) {
          rest.pop_back();
        } else if (size % wanted == 0) {
          // The fast part keeps the number.
          int slow = split(dim, wanted);
          rest.back() = slow;
          for (DimList &dims : result)
            replaceBySplit(dims, dim, slow);
          size = wanted;
        } else {
          return std::nullopt;
        }
        result[d].insert(result[d].begin(), dim);
        wanted /= size;
      }
    }
    return result;
  }

  /// Splits off the slow part of a dimension; `fast` is what stays.
  int split(int dim, int64_t fast) {
    int slow = extents.size();
    extents.push_back(extents[dim] / fast);
    sides.push_back(sides[dim]);
    extents[dim] = fast;
    for (Side *side : {&first, &second})
      for (auto &[value, map] : side->maps)
        for (DimList &dims : map)
          replaceBySplit(dims, dim, slow);
    return slow;
  }
  static void replaceBySplit(DimList &dims, int dim, int slow) {
    auto *at = llvm::find(dims, dim);
    if (at != dims.end())
      dims.insert(at, slow);
  }

  /// Makes the maps of a value on both sides the same.
  bool identify(Value value) {
    size_t rank = tensorType(value).getRank();
    for (size_t d = 0; d < rank; ++d)
      for (size_t fromEnd = 0;; ++fromEnd) {
        // Splits and identifications change the lists: look again each time.
        DimList &x = first.maps[value][d], &y = second.maps[value][d];
        if (fromEnd >= x.size() && fromEnd >= y.size())
          break;
        if (fromEnd >= x.size() || fromEnd >= y.size())
          return false;
        int p = x[x.size() - 1 - fromEnd], q = y[y.size() - 1 - fromEnd];
        if (p == q)
          continue;
        if (extents[p] > extents[q] && extents[q] &&
            extents[p] % extents[q] == 0)
          split(p, extents[q]);
        else if (extents[q] > extents[p] && extents[p] &&
                 extents[q] % extents[p] == 0)
          split(q, extents[p]);
        if (extents[p] != extents[q] || (sides[p] & sides[q]))
          return false;
        replace(q, p);
      }
    return true;
  }

  void replace(int from, int to) {
    sides[to] |= sides[from];
    for (Side *side : {&first, &second})
      for (auto &[value, map] : side->maps)
        for (DimList &dims : map)
          for (int &d : dims)
            if (d == from)
              d = to;
  }

  Group merged() {
    Group group;
    SmallVector<Operation *> ops(first.group->ops.begin(),
                                 first.group->ops.end());
    llvm::append_range(ops, second.group->ops);
    llvm::sort(
        ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    group.ops.insert_range(ops);
    SmallVector<int> number(extents.size(), -1);
    for (Side *side : {&first, &second}) {
      for (auto &[value, map] : side->maps) {
        for (DimList &dims : map)
          for (int &d : dims) {
            if (number[d] < 0) {
              number[d] = group.extents.size();
              group.extents.push_back(extents[d]);
            }
            d = number[d];
          }
        group.maps.insert({value, map});
      }
      group.views.insert_range(side->group->views);
      group.views.insert_range(side->newViews);
    }
    return group;
  }

  Side first, second;
  SmallVector<int64_t> extents;
  SmallVector<int> sides; // bits: which group a dimension comes from
};
} // namespace

std::optional<Group> fusion::unite(const Group &a, const Group &b) {
  return Uniter(a, b).run();
}
