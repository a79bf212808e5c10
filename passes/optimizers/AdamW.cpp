//===- AdamW.cpp - Adam with decoupled weight decay -----------------------===//
#include "passes/optimizers/Rules.h"

using namespace pipec;
using namespace pipec::nn;
using mlir::Value;

llvm::SmallVector<std::string> AdamW::states(const Settings &) const {
  return {"exp_avg", "exp_avg_sq"};
}

/// w *= 1 - lr decay, then Adam's step.
Optimizer::Outputs AdamW::emit(NNBuilder &b, const Inputs &in,
                               const Settings &s) const {
  Value weight = in.weight;
  if (double decay = s.at("weight_decay"); decay != 0) {
    Value shrink = sub(b, splatLike(b, in.learningRate, 1),
                       mulScalar(b, in.learningRate, decay));
    weight = mul(b, weight, spread(b, shrink, weight));
  }
  return adamStep(b, in, s, weight, in.gradient);
}
