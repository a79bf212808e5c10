//===- Evaluate.h - nn ops on literals --------------------------*- C++ -*-===//
//
// A plain evaluator of the nn dialect. The importer folds constants with it;
// the tests use it as the meaning of an op and of a whole function.
//
//===----------------------------------------------------------------------===//

#pragma once

#include "dialects/nn/NN.h"
#include "dialects/nn/eval/Literal.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <functional>
#include <map>

namespace pipec::nn {

struct EvaluateOptions {
  /// Round to the element type after every op. Without it floats stay doubles:
  /// the reference for gradients by differences.
  bool round = true;
};

/// The results of one op. Fails, with a sentence in `why`, for an op that has
/// no evaluation (a parameter read, a track) and for an index out of range.
mlir::FailureOr<llvm::SmallVector<Literal>>
evaluate(mlir::Operation *op, llvm::ArrayRef<Literal> operands,
         const EvaluateOptions &options, std::string &why);

/// About how many elements evaluating the op would compute or copy; 0 for what
/// only changes strides.
int64_t evaluationWork(mlir::Operation *op, llvm::ArrayRef<Literal> operands);

/// What a function computes.
struct FunctionResult {
  llvm::SmallVector<Literal> outputs;
  /// What nn.track saw, in program order: parameter and value.
  std::vector<std::pair<std::string, Literal>> tracked;
};

/// Runs a function of nn ops. `parameters` gives the tensor of an nn.parameter.
mlir::FailureOr<FunctionResult>
evaluate(mlir::func::FuncOp function, llvm::ArrayRef<Literal> inputs,
         const std::function<Literal(llvm::StringRef)> &parameters,
         const EvaluateOptions &options, std::string &why);

} // namespace pipec::nn
