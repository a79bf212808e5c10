//===- Overlaps.h - which loads and stores share memory ---------*- C++ -*-===//
#pragma once

#include "mlir/IR/Operation.h"
#include "llvm/ADT/StringMap.h"

#include <vector>

namespace pipec::fusion {

/// Loads, or stores, of a task by the memory that they name. A task of a large
/// stage has thousands of both, and nearly none share any.
class Overlaps {
public:
  /// All of `ops` are loads, or all are stores.
  explicit Overlaps(llvm::ArrayRef<mlir::Operation *> ops);

  /// Those that share bytes with `op`, a load or a store and perhaps one of
  /// them, in the order they were given in.
  llvm::SmallVector<mlir::Operation *> with(mlir::Operation *op) const;

private:
  struct Place {
    int64_t begin, end, furthest; ///< the last end of those up to this one
    size_t index;
  };
  void collect(llvm::StringRef region, const Place &place,
               llvm::SmallVectorImpl<size_t> &found) const;

  std::vector<mlir::Operation *> all;
  llvm::StringMap<std::vector<Place>> places; ///< by begin
};

} // namespace pipec::fusion
