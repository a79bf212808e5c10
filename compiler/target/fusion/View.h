//===- View.h - where the elements of a tensor are -------------*- C++ -*-===//
//
// A view op moves nothing when its result can be addressed in the memory of its
// operand. Strides and offsets count elements.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "mlir/IR/Operation.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

namespace pipec::fusion {

/// The tensor element at index i is at `offset + sum(i[d] * strides[d])` of
/// `buffer`, a number in the task's list of buffers.
struct Placement {
  int buffer = -1;
  int64_t offset = 0;
  llvm::SmallVector<int64_t> strides;

  bool operator==(const Placement &o) const {
    return buffer == o.buffer && offset == o.offset && strides == o.strides;
  }
};

llvm::SmallVector<int64_t> denseStrides(llvm::ArrayRef<int64_t> shape);

/// The strides that give the elements of (from, strides), taken in row-major
/// order, the shape `to`; nothing when no strides do.
std::optional<llvm::SmallVector<int64_t>>
reshapeStrides(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> strides,
               llvm::ArrayRef<int64_t> to);

/// broadcast, reshape, transpose, slice, reverse, and what is the identity.
bool isView(mlir::Operation *op);
/// A view whose result has exactly the elements of its operand.
bool isBijectiveView(mlir::Operation *op);

/// Where the result of a view is when its operand is at `source`.
std::optional<Placement> throughView(mlir::Operation *view,
                                     const Placement &source);
/// Where the operand of a bijective view must be for its result to be at
/// `result`.
std::optional<Placement> backThroughView(mlir::Operation *view,
                                         const Placement &result);

} // namespace pipec::fusion
