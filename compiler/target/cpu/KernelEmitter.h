//===- KernelEmitter.h - writes one kernel ---------------------*- C++ -*-===//
//
// The parts of EmitKernel: loops (EmitKernel.cpp), loads and stores
// (EmitMemory.cpp), reductions over the points of a row (EmitReduce.cpp).
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/target/cpu/EmitKernel.h"
#include "compiler/target/fusion/PointEmitter.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace pipec::cpu {

/// Values as they run through the loops of a row: one or two for each row
/// reduction.
using Running = llvm::SmallVector<mlir::Value>;

class KernelEmitter : public fusion::PointEmitter {
public:
  KernelEmitter(mlir::ModuleOp module, llvm::StringRef name,
                const fusion::KernelPlan &plan, const fusion::Machine &machine);
  mlir::FailureOr<KernelCode> run();

private:
  using Access = fusion::Access;

  // Set-up
  void loadPointers(Value array);
  void setRange();

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
  void yield(mlir::scf::ForOp loop, const Running &values);

  // Memory
  Value loadAt(const Access &access, Value extra = {}) override;
  void storeAt(const Access &access, Value value) override;
  Value lanePointers(Value pointer, Type element, int64_t stride);
  Value allLanes() { return math.integer(laneType(b.getI1Type()), 1); }

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

  KernelCode code;
  llvm::SmallVector<nn::ReduceOp> reductions; // that this phase completes
  Value mask;
};

} // namespace pipec::cpu
