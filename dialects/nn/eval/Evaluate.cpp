//===- Evaluate.cpp - nn ops and functions on literals --------------------===//
#include "dialects/nn/eval/Kernels.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;

namespace pipec::nn {

Literal eval::Context::floats(RankedTensorType type,
                              std::vector<double> values) const {
  if (options.round && !type.getElementType().isF64())
    for (double &v : values)
      v = roundTo(type.getElementType(), v);
  return Literal(type, std::move(values));
}

FailureOr<SmallVector<Literal>> evaluate(Operation *op,
                                         ArrayRef<Literal> operands,
                                         const EvaluateOptions &options,
                                         std::string &why) {
  const eval::Context context{operands, options, why};
  for (auto family : {eval::elementwise, eval::shape, eval::indexing,
                      eval::reduction, eval::contraction, eval::pooling}) {
    FailureOr<eval::Results> results = family(op, context);
    if (failed(results) || !results->empty())
      return results;
  }
  why = "'" + op->getName().getStringRef().str() + "' has no evaluation";
  return failure();
}

FailureOr<FunctionResult>
evaluate(func::FuncOp function, ArrayRef<Literal> inputs,
         const std::function<Literal(StringRef)> &parameters,
         const EvaluateOptions &options, std::string &why) {
  llvm::DenseMap<Value, Literal> values;
  for (auto [argument, literal] :
       llvm::zip_equal(function.getArguments(), inputs))
    values[argument] = literal;
  FunctionResult result;
  for (Operation &op : function.getBody().front()) {
    SmallVector<Literal> operands;
    for (Value operand : op.getOperands())
      operands.push_back(values.lookup(operand));
    if (isa<func::ReturnOp>(op)) {
      result.outputs = operands;
    } else if (auto weight = dyn_cast<WeightOp>(op)) {
      values[weight.getY()] = parameters(weight.getParameter());
    } else if (auto track = dyn_cast<TrackOp>(op)) {
      result.tracked.emplace_back(track.getParameter().str(), operands[0]);
    } else {
      FailureOr<SmallVector<Literal>> results =
          evaluate(&op, operands, options, why);
      if (failed(results))
        return failure();
      for (auto [value, literal] : llvm::zip_equal(op.getResults(), *results))
        values[value] = literal;
    }
  }
  return result;
}

} // namespace pipec::nn
