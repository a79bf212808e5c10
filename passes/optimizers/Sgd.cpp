//===- Sgd.cpp - stochastic gradient descent ------------------------------===//
#include "passes/optimizers/Rules.h"

using namespace pipec;
using namespace pipec::nn;
using mlir::Value;

llvm::SmallVector<std::string> Sgd::states(const Settings &s) const {
  if (s.at("momentum") == 0)
    return {};
  return {"momentum_buffer"};
}

/// PyTorch: g += decay w; buffer = g in the first update, then momentum buffer
/// + g (a zero buffer gives the first for free); w -= lr (g + momentum buffer
/// with Nesterov, else buffer).
Optimizer::Outputs Sgd::emit(NNBuilder &b, const Inputs &in,
                             const Settings &s) const {
  Outputs out;
  Value g = in.gradient;
  double momentum = s.at("momentum"), decay = s.at("weight_decay");
  if (decay != 0)
    g = add(b, g, mulScalar(b, in.weight, decay));
  if (momentum != 0) {
    Value buffer = add(b, mulScalar(b, in.state[0], momentum), g);
    out.state.push_back(buffer);
    g = s.at("nesterov") != 0 ? add(b, g, mulScalar(b, buffer, momentum))
                              : buffer;
  }
  Value step = mul(b, spread(b, in.learningRate, in.weight), g);
  out.weight = sub(b, in.weight, step);
  return out;
}
