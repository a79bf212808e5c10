//===- Graph.h - questions passes ask of @main ------------------*- C++ -*-===//
#pragma once

#include "dialects/nn/NN.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pipec {

/// Attributes that the partition and differentiation leave on ops.
inline constexpr llvm::StringLiteral kOpStage = "pipe.stage";
inline constexpr llvm::StringLiteral kOpPhase = "pipe.phase";

/// On an nn.weight of a program in pieces: a number that the copies of one use
/// share. On the module: how many pieces a sequence has (nn-slice-sequence).
inline constexpr llvm::StringLiteral kOpUse = "pipe.use";
inline constexpr llvm::StringLiteral kSlices = "pipe.slices";

/// On an nn.concat that puts a piece behind those before it: what came before
/// was received, so that only the piece has to be kept.
inline constexpr llvm::StringLiteral kOpJoins = "pipe.joins";

/// The pieces of a sequence; stages of the first one come first, in order.
int64_t slicesOf(mlir::ModuleOp module);

/// The model's function, or null after an error that says it is missing.
mlir::func::FuncOp mainFunction(mlir::ModuleOp module);

/// Stage of an op, or -1.
int64_t stageOf(mlir::Operation *op);
bool isBackward(mlir::Operation *op);

/// Of the forward pass, but of no node of the model: a gradient that is
/// computed there (EarlyGradients.h).
bool isEarly(mlir::Operation *op);
void makeEarly(mlir::Operation *op);

/// The ops that read nothing that depends on a model input: a constant, a
/// weight, or made of such. They are repeated wherever they are read and are no
/// nodes of the model's chain. Asked once for each op and remembered, so that
/// all ops together cost one pass over them; ops must not be erased meanwhile.
class Sources {
public:
  explicit Sources(mlir::func::FuncOp main);
  bool contains(mlir::Operation *op);

private:
  llvm::DenseMap<mlir::Operation *, bool> known;
};

/// The chain that is partitioned: all forward ops that are not sources.
llvm::SmallVector<mlir::Operation *> modelNodes(mlir::func::FuncOp main);

/// What gradients come back for: the forward ops' floating-point values that
/// depend on a trained weight, no gradient being stopped in between.
llvm::DenseSet<mlir::Value> activeValues(mlir::func::FuncOp main);

/// A name for diagnostics and reports: the ONNX node's, else the op's.
std::string nodeName(mlir::Operation *op);

} // namespace pipec
