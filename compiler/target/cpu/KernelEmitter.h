//===- KernelEmitter.h - writes one kernel ---------------------*- C++ -*-===//
//
// The parts of EmitKernel: loops (EmitKernel.cpp), values at a point
// (EmitValue.cpp), reductions over the points of a row (EmitReduce.cpp).
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/target/cpu/EmitKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace pipec::cpu {

/// How deep in the nest a value changes.
enum class Level { Entry, Row, Point, Lane };

/// One pointer with its strides: of a leaf, a target, a spill or partial sums.
struct Access {
  int argument = 0;
  llvm::ArrayRef<int64_t> strides;
  mlir::Type element;
  mlir::Value rowPointer; // at the current row
};

/// Values as they run through the loops of a row: one or two for each row
/// reduction.
using Running = llvm::SmallVector<mlir::Value>;

class KernelEmitter {
public:
  KernelEmitter(mlir::ModuleOp module, llvm::StringRef name,
                const KernelPlan &plan, const Machine &machine);
  mlir::FailureOr<KernelCode> run();

private:
  using Value = mlir::Value;
  using Type = mlir::Type;
  using Strides = llvm::ArrayRef<int64_t>;

  // Set-up
  void collectAccesses();
  int argument(const Placement &at, Type element);
  void loadPointers(Value array);
  void countPhases();
  void setRange();
  /// Targets, then spills.
  Value valueOf(size_t target) const;
  /// A target that changes by row only.
  bool isRowTarget(size_t target) const;
  int64_t outerCount() const;
  int64_t columns() const;
  int phaseOf(Value value) { return phases.of(value); }
  Level levelOf(Strides strides) const;
  Level levelOf(Value value);

  // Loops
  void emitFlat(Value lo, Value hi);
  void emitFlatTail(Value end, Value hi);
  void emitFlatPoint();
  void emitRows(Value lo, Value hi);
  void emitChunks(Value lo, Value hi);
  void clearPartials(llvm::StringRef kind, Access &access);
  void enterRow(Value row);
  void emitRow();
  void emitPhase();
  Running emitWalk(size_t depth, Running running);
  Running emitLanes(Running running);
  void emitPoint(Running &running);
  void write(size_t target);
  void yield(mlir::scf::ForOp loop, const Running &values);

  // Values at the current point
  Value evaluate(Value value);
  Value compute(Value value);
  Value computeOp(mlir::Operation *op);
  Value compareWithIndex(nn::CompareOp op);
  Value readLeaf(Value value);
  Value sumPartials(nn::ReduceOp op, const Leaf &leaf, const Access &access);
  Value indexAt(const Access &access, Type element);
  Value loadAt(const Access &access, Value extra = {});
  void storeAt(const Access &access, Value value);
  Value pointerAt(const Access &access);
  Value lanePointers(Value pointer, Type element, int64_t stride);

  // Reductions
  void startReductions();
  Running identities();
  void accumulate(Running &running);
  void finishReductions(const Running &running);
  Value fold(llvm::StringRef kind, Value lanes);
  bool tracksNan(nn::ReduceOp op) const;
  Value keepLarger(nn::ReduceOp op, Value x, Value y);
  bool isPick(nn::ReduceOp op, Value &picked, Value &index);
  Value pick(nn::ReduceOp op, Value picked, Value index);

  // Short forms
  Value integer(int64_t value) {
    return mlir::arith::ConstantIntOp::create(b, value, 64);
  }
  Value add(Value x, Value y) { return mlir::arith::AddIOp::create(b, x, y); }
  Value times(Value x, int64_t factor) {
    return factor == 1 ? x : mlir::arith::MulIOp::create(b, x, integer(factor));
  }
  Value offset(llvm::ArrayRef<Value> indices, Strides strides);
  Value advance(Value pointer, Type element, Value elements);
  Type memoryType(Type element) {
    return element.isInteger(1) ? b.getI8Type() : element;
  }
  Type laneType(Type element) {
    return width == 1 ? element : Type(mlir::VectorType::get({width}, element));
  }
  /// The same in all lanes.
  Value spread(Value value);
  Value zeros(Type type);
  Value allLanes() { return math.integer(laneType(b.getI1Type()), 1); }
  Value fromMemory(Value value, Type element);
  Value toMemory(Value value);

  const KernelPlan &plan;
  const Machine &machine;
  mlir::ImplicitLocOpBuilder b;
  MathEmitter math;
  KernelCode code;
  Type pointerType;
  /// Lanes of a vector; 1 means scalars.
  int64_t width = 1;
  /// Loops before `walk` in every list of strides.
  size_t rowLoops = 0;

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
  llvm::SmallVector<nn::ReduceOp> reductions; // that this phase completes
  llvm::SmallVector<Value> rowIndices, walkIndices;
  Value laneIndex, mask;
  mlir::Operation *entryAnchor = nullptr, *rowAnchor = nullptr;
  llvm::DenseMap<Value, Value> atEntry, atRow, atPoint;
  mlir::Operation *unsupported = nullptr;
};

} // namespace pipec::cpu
