//===- Adam.cpp - Adam ----------------------------------------------------===//
#include "passes/optimizers/Rules.h"

#include <cmath>

using namespace pipec;
using namespace pipec::nn;
using mlir::Value;

/// 1 - beta^t in f64, as PyTorch computes it.
static Value biasCorrection(NNBuilder &b, double beta, Value t) {
  Value power = PowOp::create(b, splatLike(b, t, beta), t);
  return sub(b, splatLike(b, t, 1), power);
}

/// m += (1 - beta1) (g - m); v = beta2 v + (1 - beta2) g g;
/// w -= lr / c1 * m / (sqrt(v) / sqrt(c2) + eps).
Optimizer::Outputs pipec::adamStep(NNBuilder &b, const Optimizer::Inputs &in,
                                   const Optimizer::Settings &s, Value weight,
                                   Value g) {
  double beta1 = s.at("beta1"), beta2 = s.at("beta2");
  Value m =
      add(b, in.state[0], mulScalar(b, sub(b, g, in.state[0]), 1 - beta1));
  Value v = add(b, mulScalar(b, in.state[1], beta2),
                mul(b, mulScalar(b, g, 1 - beta2), g));
  Value c1 = biasCorrection(b, beta1, in.update);
  Value c2 = SqrtOp::create(b, biasCorrection(b, beta2, in.update));
  Value stepSize = div(b, in.learningRate, c1);
  Value root = div(b, SqrtOp::create(b, v), spread(b, c2, v));
  Value denominator = addScalar(b, root, s.at("eps"));
  Value step = mul(b, spread(b, stepSize, m), div(b, m, denominator));
  return {sub(b, weight, step), {m, v}};
}

llvm::SmallVector<std::string> Adam::states(const Settings &) const {
  return {"exp_avg", "exp_avg_sq"};
}

Optimizer::Outputs Adam::emit(NNBuilder &b, const Inputs &in,
                              const Settings &s) const {
  Value g = in.gradient;
  if (s.at("weight_decay") != 0)
    g = add(b, g, mulScalar(b, in.weight, s.at("weight_decay")));
  return adamStep(b, in, s, in.weight, g);
}
