//===- Demand.h - what each piece of a sequence needs -----------*- C++ -*-===//
//
// Starts at the loss, a sum over positions, and walks back: to compute these
// positions of a result, which positions of its operands does an op read? The
// keys and values of attention are needed up to the end of the piece; a value
// that is needed whole lets tokens see later ones, and is refused.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "passes/sequence/MaskFacts.h"
#include "passes/sequence/Parts.h"

namespace pipec::sequence {

/// A part of a value that some piece computes.
struct Demand {
  Parts region;
  bool lastOnly = false; ///< by the last piece alone: behind the loss's sum
};

/// Positions over which the loss of `main` sums, or failure after an error that
/// says why its model has no sequence.
mlir::FailureOr<int64_t> sequenceLength(mlir::func::FuncOp main);

class Demands {
public:
  Demands(mlir::func::FuncOp main, const Pieces &pieces);

  /// Fails after an error at the first op that cannot be cut into pieces.
  mlir::LogicalResult run();

  llvm::ArrayRef<Demand> of(mlir::Value v) const;

  /// The regions of the operands that make `region` of the op's result;
  /// nothing where only the whole result can be computed.
  std::optional<llvm::SmallVector<Parts>>
  operandRegions(mlir::Operation *op, const Parts &region) const;

  /// Depends on weights and inputs: a piece computes its positions, once.
  bool isComputed(mlir::Value v) const { return computed.contains(v); }
  /// A sum over all positions: the last piece adds the pieces' sums.
  bool isSequenceSum(mlir::Operation *op) const;
  /// Whether `region`, with a prefix, is the pieces' parts one after the other;
  /// else it is computed from such operands.
  bool joinsPieces(mlir::Value v, const Parts &region) const;

private:
  void visit(mlir::Operation *op, const Demand &demand);
  void require(mlir::Operation *op, mlir::Value operand, const Parts &region,
               bool lastOnly);
  void checkLast(mlir::Operation *op);
  void add(mlir::Value v, const Parts &region, bool lastOnly);
  void complain(mlir::Operation *op, const llvm::Twine &why);

  /// \name operandRegions by kind of op
  /// @{
  using Operands = std::optional<llvm::SmallVector<Parts>>;
  Operands ofMatmul(nn::MatmulOp op, const Parts &region) const;
  Operands ofReduce(nn::ReduceOp op, const Parts &region) const;
  Operands ofSoftmax(nn::SoftmaxOp op, const Parts &region) const;
  /// @}

  /// A dimension that is in pieces here, with which later positions of `key`
  /// are known to be `fact`; -1 when there is none.
  int64_t queryOf(mlir::Value x, const Parts &region, int64_t key,
                  Later fact) const;

  mlir::func::FuncOp main;
  const Pieces &pieces;
  MaskFacts facts;
  llvm::DenseSet<mlir::Value> computed;
  mlir::Operation *wrong = nullptr;
  std::string reason;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Demand, 1>> demands;
};

} // namespace pipec::sequence
