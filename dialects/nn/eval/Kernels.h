//===- Kernels.h - evaluation by family, private ----------------*- C++ -*-===//

#pragma once

#include "dialects/nn/eval/Evaluate.h"

namespace pipec::nn::eval {

using Results = llvm::SmallVector<Literal>;

/// Where an op stands: operands, rounding, and why it failed.
struct Context {
  llvm::ArrayRef<Literal> operands;
  const EvaluateOptions &options;
  std::string &why;

  const Literal &operator[](size_t i) const { return operands[i]; }
  double round(mlir::Type element, double value) const {
    return options.round ? roundTo(element, value) : value;
  }
  /// A literal of floats, rounded as the options say.
  Literal floats(mlir::RankedTensorType type, std::vector<double> values) const;
};

inline mlir::RankedTensorType resultType(mlir::Operation *op, unsigned i = 0) {
  return llvm::cast<mlir::RankedTensorType>(op->getResult(i).getType());
}

// Each returns no result (empty) for an op that is not of its family, and
// failure for one that cannot be evaluated.
mlir::FailureOr<Results> elementwise(mlir::Operation *op, const Context &c);
mlir::FailureOr<Results> shape(mlir::Operation *op, const Context &c);
mlir::FailureOr<Results> indexing(mlir::Operation *op, const Context &c);
mlir::FailureOr<Results> reduction(mlir::Operation *op, const Context &c);
mlir::FailureOr<Results> contraction(mlir::Operation *op, const Context &c);
mlir::FailureOr<Results> attention(mlir::Operation *op, const Context &c);
mlir::FailureOr<Results> pooling(mlir::Operation *op, const Context &c);

} // namespace pipec::nn::eval
