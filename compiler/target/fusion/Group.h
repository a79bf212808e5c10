//===- Group.h - ops that become one kernel --------------------*- C++ -*-===//
//
// A group is a set of ops evaluated together at the points of one loop nest.
// Every value of the group is known by which loop dimensions its own dimensions
// run over; views inside a group are therefore free.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "dialects/nn/NN.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace pipec::fusion {

/// The loop dimensions that one tensor dimension runs over, slowest first.
/// Empty for a dimension of size 1.
using DimList = llvm::SmallVector<int, 2>;
using ValueMap = llvm::SmallVector<DimList, 4>;

/// All loop dimensions of a map in order.
DimList flatten(const ValueMap &map);

struct Group {
  /// Size of every loop dimension.
  llvm::SmallVector<int64_t> extents;
  /// The ops computed here, in program order.
  llvm::SetVector<mlir::Operation *> ops;
  /// Results, operands, and the views between them; not splat constants.
  llvm::MapVector<mlir::Value, ValueMap> maps;
  /// Views of what is computed here, resolved without memory.
  llvm::SetVector<mlir::Value> views;

  /// A group of one op, or of none that only writes `value` to memory.
  static Group ofOp(mlir::Operation *op);
  static Group ofValue(mlir::Value value);

  /// Whether `value` is evaluated here (also through views) rather than read.
  bool computes(mlir::Value value) const;
};

/// How the loops over a group are nested:
///
///   for outer                      parallel
///     for rows, in chunks          parallel over chunks; column reductions sum
///     here
///       for each phase             a row reduction ends a phase
///         for walk, for lane       lane is the vectorized one
struct Nest {
  DimList outer, rows, walk, lane;
  llvm::SmallVector<nn::ReduceOp> rowReductions, columnReductions;
};

/// The nest of a group; nothing when its ops do not fit in one.
std::optional<Nest> nestOf(const Group &group);

/// How many row reductions, one after the other, must be complete before a
/// value of the group is known at a point. A row of a kernel is walked once a
/// phase.
class Phases {
public:
  explicit Phases(const Group &group) : group(group) {}
  int of(mlir::Value value);

private:
  const Group &group;
  llvm::DenseMap<mlir::Value, int> known;
};

/// `a` and `b` as one group, when their points can be identified through every
/// value that one computes and the other reads, or both read (Unite.cpp).
std::optional<Group> unite(const Group &a, const Group &b);

/// Whether the op is evaluated in generated loops (and is not a view).
bool isGenerated(mlir::Operation *op);
/// iota and splat constants cost nothing and are evaluated where they are used.
bool isImmediate(mlir::Value value);
bool isSplat(mlir::Value value);
/// What a value is a view of.
mlir::Value viewBase(mlir::Value value);

} // namespace pipec::fusion
