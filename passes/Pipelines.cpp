//===- Pipelines.cpp - the order of the passes ----------------------------===//
#include "passes/Pipelines.h"

#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Passes.h"

#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace pipec {

static void addCleanup(OpPassManager &pm) {
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

static void addLoss(OpPassManager &pm, const LossChoice &loss) {
  AttachLossOptions options;
  options.kind = loss.kind;
  options.logits = loss.logits;
  options.label = loss.label;
  options.ignoreIndex = loss.ignoreIndex;
  options.classAxis = loss.classAxis;
  options.labelSmoothing = loss.labelSmoothing;
  options.posWeight = loss.posWeight;
  options.classWeights.assign(loss.classWeights.begin(),
                              loss.classWeights.end());
  options.perSample = loss.perSample;
  pm.addPass(createAttachLoss(options));
}

void addAttachPhase(OpPassManager &pm, const LossChoice &loss, Purpose purpose,
                    const std::string &precision, bool fuseAttention,
                    bool addBiases) {
  if (purpose != Purpose::Train) {
    MarkOutputsOptions outputs;
    outputs.keepResults = purpose == Purpose::Evaluate;
    pm.addPass(createMarkOutputs(outputs));
  }
  if (purpose != Purpose::Infer)
    addLoss(pm, loss);
  addCleanup(pm);
  if (fuseAttention) {
    pm.addPass(createFuseAttention());
    addCleanup(pm);
  }
  if (precision != "fp32") {
    PrecisionOptions options;
    options.type = precision;
    options.biases = addBiases;
    pm.addPass(createPrecision(options));
    addCleanup(pm);
  }
  pm.addPass(createSplitUses());
}

void addPartitionPhase(OpPassManager &pm, ArrayRef<int64_t> cuts) {
  AssignStagesOptions options;
  options.cuts.assign(cuts.begin(), cuts.end());
  pm.addPass(createAssignStages(options));
}

void addSlicePhase(OpPassManager &pm, int64_t slices) {
  SliceSequenceOptions options;
  options.slices = slices;
  pm.addPass(createSliceSequence(options));
}

void addDifferentiatePhase(OpPassManager &pm, int64_t microbatches,
                           const std::string &stash, ArrayRef<int64_t> again) {
  DifferentiateOptions options;
  options.microbatches = microbatches;
  pm.addPass(createDifferentiate(options));
  addCleanup(pm);
  ChooseStashOptions choice;
  choice.mode = stash;
  choice.again.assign(again.begin(), again.end());
  pm.addPass(createChooseStash(choice));
  addCleanup(pm);
}

void addSplitPhase(OpPassManager &pm, bool splitBackward) {
  SplitStagesOptions options;
  options.splitBackward = splitBackward;
  pm.addPass(createSplitStages(options));
  pm.addPass(createVerifyStages());
}

void addMemoryPhase(OpPassManager &pm, const MemoryChoice &choice) {
  if (choice.keepsRounded)
    pm.addPass(createRoundWeights());
  PlanMemoryOptions options;
  options.evenRows = choice.evenRows;
  pm.addPass(createPlanMemory(options));
}

void addUpdatePhase(OpPassManager &pm, const std::string &optimizer,
                    ArrayRef<std::string> settings) {
  AttachOptimizerOptions options;
  options.kind = optimizer;
  options.settings.assign(settings.begin(), settings.end());
  pm.addPass(createAttachOptimizer(options));
  addCleanup(pm);
}

void registerPipecPipelines() {
  PassPipelineRegistration<>(
      "pipec-differentiate", "gradients and what is kept, one microbatch",
      [](OpPassManager &pm) { addDifferentiatePhase(pm, 1, "selective"); });
  PassPipelineRegistration<>("pipec-split", "stages, tasks and their memory",
                             [](OpPassManager &pm) {
                               addSplitPhase(pm, false);
                               addMemoryPhase(pm);
                             });
}

} // namespace pipec
