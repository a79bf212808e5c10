//===- Loss.cpp - importers of loss operators -----------------------------===//
#include "compiler/onnx/ops/Ops.h"

using namespace mlir;

namespace pipec::onnx {

/// -logProbability of the target class, weighted and reduced. Classes lie on
/// axis 1; elements whose target is ignored count nothing.
static Val negativeLogLikelihood(NodeContext &c, const Val &logProbability,
                                 const Val &target) {
  Emitter &e = c.e;
  const Val &x = logProbability;
  const std::string reduction = c.stringAttr("reduction", "mean");
  if (reduction != "mean" && reduction != "sum" && reduction != "none")
    c.fail("its reduction '" + reduction + "' is unknown");
  SmallVector<int64_t> expected(x.getShape());
  if (x.getRank() < 2)
    c.fail("its input has no class axis");
  expected.erase(expected.begin() + 1);
  if (target.getShape() != ArrayRef(expected))
    c.fail("its target " + shapeText(target.getShape()) +
           " does not fit its input " + shapeText(x.getShape()));
  const Type element = x.getElementType();
  const Type i64 = e.i64();
  const Val index = e.cast(target, i64);
  // One of the classes at each place; an ignored target is none of them.
  SmallVector<int64_t> thin(expected);
  thin.insert(thin.begin() + 1, 1);
  const Val hit =
      e.compare("eq", e.reshape(index, thin),
                e.iota(RankedTensorType::get(x.getShape(), i64), 1));
  const Val picked = e.select(hit, x, e.splatLike(x, 0));
  Val loss = e.neg(e.reshape(e.reduce("sum", picked, {1}), expected));
  Val weight;
  if (c.has(2)) {
    SmallVector<int64_t> row(x.getRank(), 1);
    row[1] = x.dim(1);
    const Val classWeight = e.broadcast(e.reshape(c.in(2), row), x.getShape());
    weight = e.reshape(
        e.reduce("sum", e.select(hit, classWeight, e.splatLike(x, 0)), {1}),
        expected);
  }
  if (c.attribute("ignore_index")) {
    const Val counts =
        e.compare("ne", index, static_cast<double>(c.intAttr("ignore_index")));
    const Val one =
        weight ? weight : e.splat(RankedTensorType::get(expected, element), 1);
    weight = e.select(counts, one, e.splatLike(one, 0));
  }
  if (weight)
    loss = e.mul(loss, weight);
  if (reduction == "none")
    return loss;
  const SmallVector<int64_t> all(
      llvm::to_vector(llvm::seq<int64_t>(0, loss.getRank())));
  const Val sum = e.reshape(e.reduce("sum", loss, all), {});
  if (reduction == "sum")
    return sum;
  if (weight)
    return e.div(sum, e.reshape(e.reduce("sum", weight, all), {}));
  return e.div(
      sum, e.splatLike(sum, static_cast<double>(loss.type.getNumElements())));
}

void importNegativeLogLikelihoodLoss(NodeContext &c) {
  c.out(negativeLogLikelihood(c, c.floatIn(0), c.in(1)));
}

void importSoftmaxCrossEntropyLoss(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.floatIn(0);
  if (x.getRank() < 2)
    c.fail("its input has no class axis");
  const Val top = e.unary<nn::StopGradientOp>(e.reduce("max", x, {1}));
  const Val shifted = e.sub(x, top);
  const Val sum = e.reduce("sum", e.unary<nn::ExpOp>(shifted), {1});
  const Val logProbability = e.sub(shifted, e.unary<nn::LogOp>(sum));
  c.out(0, negativeLogLikelihood(c, logProbability, c.in(1)));
  c.out(1, logProbability);
}

} // namespace pipec::onnx
