//===- Pipelines.h - the order of the passes --------------------*- C++ -*-===//
//
// import -> attach -> partition (-> slice) -> differentiate -> split -> memory
// -> update. Nothing else in the project knows which pass follows which.
//
//===----------------------------------------------------------------------===//

#pragma once

#include "mlir/Pass/PassManager.h"

#include <map>
#include <string>

namespace pipec {

struct LossChoice {
  std::string kind, logits;
  std::string label; ///< empty: the kind's default
  int64_t ignoreIndex = -100;
  int64_t classAxis = -1; ///< of the logits; -1: ClassAxis.h, and the label
  double labelSmoothing = 0, posWeight = 1;
  std::vector<double> classWeights;
  std::string perSample; ///< output that takes the loss's place; empty: none
};

/// What the program is for.
enum class Purpose {
  Train,    ///< the loss is its only result
  Infer,    ///< no loss, all outputs
  Evaluate, ///< the loss and all outputs
};

/// Outputs or the loss, and one nn.weight a use: what is priced and
/// partitioned.
/// `precision` of contractions: fp32, bf16. `fuseAttention`: as one op that
/// keeps no scores. `addBiases`: products of bf16 have them (Precision).
void addAttachPhase(mlir::OpPassManager &pm, const LossChoice &loss,
                    Purpose purpose, const std::string &precision,
                    bool fuseAttention = false, bool addBiases = false);
/// Stage of every op.
void addPartitionPhase(mlir::OpPassManager &pm, llvm::ArrayRef<int64_t> cuts);
/// Stages for each of `slices` pieces of a sequence.
void addSlicePhase(mlir::OpPassManager &pm, int64_t slices);
/// Gradients, and what is kept for them. `stash`: none, selective; the stages
/// `again` keep their inputs alone.
void addDifferentiatePhase(mlir::OpPassManager &pm, int64_t microbatches,
                           const std::string &stash,
                           llvm::ArrayRef<int64_t> again = {});
/// Stages and tasks, verified.
void addSplitPhase(mlir::OpPassManager &pm, bool splitBackward);
struct MemoryChoice {
  bool evenRows = false;    ///< as GPUs like matrices
  bool keepsRounded = true; ///< copies of weights that tasks read rounded
};
/// Regions and offsets.
void addMemoryPhase(mlir::OpPassManager &pm, const MemoryChoice &choice = {});
/// The optimizer.
void addUpdatePhase(mlir::OpPassManager &pm, const std::string &optimizer,
                    llvm::ArrayRef<std::string> settings);

/// Registers `pipec-attach`, … as pipelines of pipec-opt.
void registerPipecPipelines();

} // namespace pipec
