//===- Optimizer.h - update rules as nn expressions -------------*- C++ -*-===//

#pragma once

#include "dialects/nn/Build.h"

#include <map>
#include <string>

namespace pipec {

/// One optimizer's arithmetic, PyTorch's step by step (same operations in the
/// same order, fp32 tensors, scalars in f64 first).
class Optimizer {
public:
  using Settings = std::map<std::string, double>;
  /// Values of one update; all tensors have one flat fp32 type.
  struct Inputs {
    mlir::Value weight, gradient;
    llvm::SmallVector<mlir::Value> state;
    mlir::Value learningRate; ///< f64 scalar, the schedule's factor included
    mlir::Value update;       ///< f64 scalar, 1 for the first update
  };
  struct Outputs {
    mlir::Value weight;
    llvm::SmallVector<mlir::Value> state;
  };
  virtual ~Optimizer() = default;
  /// State tensors that these settings need (SGD without momentum: none).
  virtual llvm::SmallVector<std::string> states(const Settings &) const = 0;
  virtual Outputs emit(nn::NNBuilder &b, const Inputs &,
                       const Settings &) const = 0;
};

/// Row of Optimizers.def.
struct OptimizerRow {
  const char *name, *states, *settings, *summary;
  const Optimizer *optimizer;
};
llvm::ArrayRef<OptimizerRow> optimizerRows();
const OptimizerRow *findOptimizer(llvm::StringRef name);

/// Parses "lr=0.1,momentum=0.9" over the row's defaults. On a mistake returns
/// false and a message that names the setting and the possible ones.
bool parseSettings(const OptimizerRow &row, llvm::StringRef text,
                   Optimizer::Settings &settings, std::string &error);

/// A f64 scalar as an fp32 tensor of the type of `like`.
mlir::Value spread(nn::NNBuilder &b, mlir::Value scalar, mlir::Value like);

} // namespace pipec
