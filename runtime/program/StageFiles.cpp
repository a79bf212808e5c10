//===- StageFiles.cpp - the stage programs of a plan on disk --------------===//
#include "runtime/program/StageFiles.h"
#include "runtime/program/Sequence.h"
#include "runtime/program/Sha256.h"
#include "support/Failure.h"

namespace pipec::plan {

static constexpr const char *kRemedy =
    "; copy the plan folder again or compile the model again";

void checkStageFile(const std::string &folder, const Stage &stage) {
  const std::string path = folder + "/" + stage.library;
  std::string found;
  try {
    found = sha256OfFile(path);
  } catch (const Failure &failure) {
    throw Failure(Exit::BadPlan, failure.what() + std::string(kRemedy));
  }
  if (found != stage.sha256)
    throw Failure(Exit::BadPlan,
                  path +
                      ": is not the stage program that was compiled (its "
                      "digest is not the one in plan.json)" +
                      kRemedy);
}

void checkStageFiles(const std::string &folder, const Plan &plan) {
  for (const Stage &stage : plan.stages)
    checkStageFile(folder, stage);
  if (forwardOnly(plan))
    return;
  for (const Stage &stage : readEvaluation(folder).stages)
    checkStageFile(folder + "/" + kEvaluationFolder, stage);
}

Plan readEvaluation(const std::string &folder) {
  const std::string evaluation = folder + "/" + kEvaluationFolder;
  try {
    return readPlan(evaluation);
  } catch (const Failure &failure) {
    if (failure.code != Exit::NoInput)
      throw;
    throw Failure(Exit::NoInput, evaluation +
                                     ": the plan that evaluates what this one "
                                     "trains is missing" +
                                     kRemedy);
  }
}

} // namespace pipec::plan
