//===- PointEmitter.h - the values of a kernel at a point ------*- C++ -*-===//
//
// What the kernels of all targets have in common: the pointers and strides of
// what they read and write, and how a value of the group is computed at the
// point where the loops around it are. A value is emitted at the outermost loop
// that it does not depend on more deeply.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/target/fusion/Math.h"
#include "compiler/target/fusion/Plan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace pipec::fusion {

/// A pointer that a kernel is given.
struct KernelArgument {
  int buffer;
  int64_t byteOffset;
  bool operator==(const KernelArgument &) const = default;
};

/// How deep in the nest a value changes.
enum class Level { Entry, Row, Point, Lane };

/// One pointer with its strides: of a leaf, a target, a spill or partial sums.
struct Access {
  int argument = 0;
  llvm::ArrayRef<int64_t> strides;
  mlir::Type element;
  mlir::Value rowPointer; // at the current row
};

class PointEmitter {
protected:
  using Value = mlir::Value;
  using Type = mlir::Type;
  using Strides = llvm::ArrayRef<int64_t>;

  PointEmitter(mlir::MLIRContext *context, const KernelPlan &plan,
               const Machine &machine);
  virtual ~PointEmitter() = default;

  /// The elements at the current point; `extra` is added to the address.
  virtual Value loadAt(const Access &access, Value extra = {}) = 0;
  virtual void storeAt(const Access &access, Value value) = 0;
  /// A leaf in memory, at the current point.
  virtual Value readMemory(Value value, const Access &access) {
    return loadAt(access);
  }
  /// The partial column sums at the current point, in order.
  virtual Value sumPartials(nn::ReduceOp op, const Leaf &leaf,
                            const Access &access);
  /// Every `step`-th of them from `first` on, which is below `step`, as they
  /// were accumulated: added in this order, read so many at once.
  Value addPartials(nn::ReduceOp op, const Leaf &leaf, const Access &access,
                    Value first, int64_t step, int64_t atOnce = 1);

  // Set-up
  void collectAccesses();
  int argument(const Placement &at, Type element);
  void countPhases();
  /// Targets, then spills.
  Value valueOf(size_t target) const;
  /// A target that changes by row only.
  bool isRowTarget(size_t target) const;
  int64_t outerCount() const;
  int64_t columns() const;
  int phaseOf(Value value) { return phases.of(value); }
  Level levelOf(Strides strides) const;
  Level levelOf(Value value);
  /// The pointers of all accesses at the row with these indices.
  void placeRow();

  // Values at the current point
  Value evaluate(Value value);
  Value compute(Value value);
  Value computeOp(mlir::Operation *op);
  Value compareWithIndex(nn::CompareOp op);
  /// Evaluates a target and stores it, or adds it to what is there.
  void write(size_t target);
  Value readLeaf(Value value);
  Value indexAt(const Access &access, Type element);
  Value pointerAt(const Access &access);

  // Short forms
  Value integer(int64_t value) {
    return mlir::arith::ConstantIntOp::create(b, value, 64);
  }
  Value add(Value x, Value y) { return mlir::arith::AddIOp::create(b, x, y); }
  Value times(Value x, int64_t factor) {
    return factor == 1 ? x : mlir::arith::MulIOp::create(b, x, integer(factor));
  }
  /// The index in each of `sizes` of element `number` in row-major order.
  llvm::SmallVector<Value> indicesOf(Value number,
                                     llvm::ArrayRef<int64_t> sizes);
  Value offset(llvm::ArrayRef<Value> indices, Strides strides);
  Value advance(Value pointer, Type element, Value elements);
  /// What memory holds: a byte for i1, the bits of a bf16 and of what is
  /// unsigned.
  Type memoryType(Type element) {
    return element.isInteger(1) ? b.getI8Type()
           : element.isBF16()   ? b.getI16Type()
           : element.isUnsignedInteger()
               ? Type(b.getIntegerType(element.getIntOrFloatBitWidth()))
               : element;
  }
  Type laneType(Type element) {
    return width == 1 ? element : Type(mlir::VectorType::get({width}, element));
  }
  /// The same in all lanes.
  Value spread(Value value);
  Value zeros(Type type);
  Value fromMemory(Value value, Type element);
  Value toMemory(Value value);

  const KernelPlan &plan;
  const Machine &machine;
  mlir::ImplicitLocOpBuilder b;
  MathEmitter math;
  Type pointerType;
  /// Lanes of a vector; 1 means scalars.
  int64_t width = 1;
  /// Loops before `walk` in every list of strides.
  size_t rowLoops = 0;

  llvm::SmallVector<KernelArgument> arguments;
  llvm::MapVector<Value, Access> leaves;
  std::vector<Access> targets, partials;
  llvm::SmallVector<nn::ReduceOp> columnOps;
  llvm::SmallVector<Value> pointers;
  /// Values in memory since an earlier phase: positions in `targets`.
  llvm::DenseMap<Value, size_t> stored;
  Phases phases;
  llvm::DenseMap<Value, Level> levels;
  int phaseCount = 1;

  // Where we are
  int phase = 0;
  llvm::SmallVector<Value> rowIndices, walkIndices;
  Value laneIndex;
  mlir::Operation *entryAnchor = nullptr, *rowAnchor = nullptr;
  llvm::DenseMap<Value, Value> atEntry, atRow, atPoint;
  mlir::Operation *unsupported = nullptr;
};

int64_t product(llvm::ArrayRef<int64_t> sizes);

} // namespace pipec::fusion
