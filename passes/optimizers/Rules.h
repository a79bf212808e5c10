//===- Rules.h - the optimizers of Optimizers.def ---------------*- C++ -*-===//

#pragma once

#include "passes/Optimizer.h"

namespace pipec {

struct Sgd : Optimizer {
  llvm::SmallVector<std::string> states(const Settings &) const override;
  Outputs emit(nn::NNBuilder &, const Inputs &,
               const Settings &) const override;
};
struct Adam : Optimizer {
  llvm::SmallVector<std::string> states(const Settings &) const override;
  Outputs emit(nn::NNBuilder &, const Inputs &,
               const Settings &) const override;
};
struct AdamW : Optimizer {
  llvm::SmallVector<std::string> states(const Settings &) const override;
  Outputs emit(nn::NNBuilder &, const Inputs &,
               const Settings &) const override;
};

/// The step that Adam and AdamW share, on a gradient and weight after decay.
Optimizer::Outputs adamStep(nn::NNBuilder &b, const Optimizer::Inputs &in,
                            const Optimizer::Settings &s, mlir::Value weight,
                            mlir::Value gradient);

} // namespace pipec
