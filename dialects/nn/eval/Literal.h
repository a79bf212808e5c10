//===- Literal.h - a tensor value known now ---------------------*- C++ -*-===//
//
// What constant folding and the reference evaluator compute with. Elements are
// kept as double or int64_t whatever the element type, and rounded to it when
// an op has been evaluated. Broadcasts, transposes and slices only change
// strides: a mask of a whole batch costs as much as one row of it.
//
//===----------------------------------------------------------------------===//

#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/SmallVector.h"
#include <memory>
#include <vector>

namespace pipec::nn {

/// Row-major strides of a shape.
llvm::SmallVector<int64_t> rowMajorStrides(llvm::ArrayRef<int64_t> shape);

/// Whether elements of the type are kept as double (else as int64_t).
inline bool holdsFloats(mlir::Type element) {
  return llvm::isa<mlir::FloatType>(element);
}

/// The nearest value of a floating-point type.
double roundTo(mlir::Type element, double value);
/// The value that remains after wrapping into an integer type; i1 gives 0 or 1.
int64_t wrapTo(mlir::Type element, int64_t value);

/// An immutable tensor; copies share the elements.
class Literal {
public:
  Literal() = default;
  /// Elements in row-major order; already representable in the element type.
  Literal(mlir::RankedTensorType type, std::vector<double> elements);
  Literal(mlir::RankedTensorType type, std::vector<int64_t> elements);
  /// Every element `value`, stored once.
  static Literal splat(mlir::RankedTensorType type, double value);
  static Literal splatInt(mlir::RankedTensorType type, int64_t value);
  /// Integers of a 1-D (or 0-D) i64 tensor.
  static Literal ints(mlir::MLIRContext *context,
                      llvm::ArrayRef<int64_t> values);
  static Literal scalarInt(mlir::MLIRContext *context, int64_t value);
  static Literal fromAttr(mlir::DenseElementsAttr attr);

  explicit operator bool() const { return static_cast<bool>(type); }
  mlir::RankedTensorType getType() const { return type; }
  mlir::Type getElementType() const { return type.getElementType(); }
  llvm::ArrayRef<int64_t> getShape() const { return type.getShape(); }
  int64_t getRank() const { return type.getRank(); }
  int64_t getNumElements() const { return type.getNumElements(); }
  bool isFloat() const { return holdsFloats(getElementType()); }

  /// Equal for views of the same elements.
  const void *getStorage() const { return buffer.get(); }
  /// To see whether the storage still is what it was: addresses come back.
  std::weak_ptr<const void> watchStorage() const { return buffer; }
  llvm::ArrayRef<int64_t> getStrides() const { return strides; }
  /// Elements that differ by position: the product of the sizes of dimensions
  /// that are not mere repetition.
  int64_t getStoredElements() const;

  /// Another way to see the same elements. No check is made.
  Literal view(mlir::RankedTensorType newType,
               llvm::SmallVector<int64_t> newStrides, int64_t newOffset) const;
  /// Same elements in row-major order, another shape; copies only where strides
  /// cannot express it.
  Literal reshaped(llvm::ArrayRef<int64_t> shape) const;
  /// Whether `reshaped` needs no copy.
  bool canReshapeAsView(llvm::ArrayRef<int64_t> shape) const;
  Literal broadcastTo(llvm::ArrayRef<int64_t> shape) const;
  /// Dimensions that are mere repetition shrink to size 1.
  Literal compressed() const;
  /// The same tensor, with dimensions along which all elements happen to be
  /// equal stored once. Reads every element.
  Literal withoutRepetition() const;
  int64_t getOffset() const { return offset; }

  /// All elements in row-major order.
  std::vector<double> doubles() const;
  std::vector<int64_t> integers() const;
  /// Element by storage position (offset + sum of index * stride).
  double doubleAt(int64_t position) const { return buffer->floats[position]; }
  int64_t intAt(int64_t position) const { return buffer->ints[position]; }

  mlir::DenseElementsAttr toAttr() const;

private:
  struct Buffer {
    std::vector<double> floats;
    std::vector<int64_t> ints;
  };
  mlir::RankedTensorType type;
  std::shared_ptr<const Buffer> buffer;
  llvm::SmallVector<int64_t> strides;
  int64_t offset = 0;
};

/// Calls f(positions) for every index of `shape` in row-major order;
/// positions[i] is the storage position in the i-th literal, whose strides must
/// fit the shape.
template <typename F>
void forEachPosition(llvm::ArrayRef<int64_t> shape,
                     llvm::ArrayRef<const Literal *> literals, F &&f) {
  const size_t rank = shape.size(), n = literals.size();
  llvm::SmallVector<int64_t> index(rank, 0), at, row;
  for (size_t i = 0; i < n; ++i)
    at.push_back(literals[i]->getOffset());
  if (rank == 0) {
    f(llvm::ArrayRef<int64_t>(at));
    return;
  }
  for (const int64_t size : shape)
    if (size == 0)
      return;
  const size_t last = rank - 1;
  for (size_t i = 0; i < n; ++i)
    row.push_back(literals[i]->getStrides()[last]);
  while (true) {
    for (int64_t k = 0; k < shape[last]; ++k) {
      f(llvm::ArrayRef<int64_t>(at));
      for (size_t i = 0; i < n; ++i)
        at[i] += row[i];
    }
    for (size_t i = 0; i < n; ++i)
      at[i] -= row[i] * shape[last];
    size_t d = last;
    while (d > 0) {
      --d;
      const bool carries = ++index[d] == shape[d];
      const int64_t step = carries ? 1 - shape[d] : 1;
      for (size_t i = 0; i < n; ++i)
        at[i] += literals[i]->getStrides()[d] * step;
      if (!carries)
        break;
      index[d] = 0;
      if (d == 0)
        return;
    }
    if (last == 0)
      return;
  }
}

} // namespace pipec::nn
