//===- Tensors.h - the named tensors of a rank ------------------*- C++ -*-===//
//
// What a checkpoint and an export are made of. Names, when weights are updated
// in place, do not depend on the partition, so that another one can resume:
//   weight/NAME, state/NAME, optimizer/SLOT/NAME.
// A stream keeps several versions per stage and resumes on the same plan only:
//   stage/K/weight/VERSION/NAME, stage/K/state/NAME,
//   stage/K/optimizer/SLOT/NAME.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/exec/RankState.h"

#include <string>
#include <vector>

namespace pipec {

struct Tensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  char *data = nullptr; ///< in the memory of the rank's device
  int64_t bytes = 0;
  /// This rank writes it; of other copies only reading makes sense.
  bool owned = false;
};

/// Reads weights, constants and states of the rank's stages from the files that
/// the plan names into version 0; roundWeights is to follow, here and behind
/// checkpoints (RoundedWeights.h). Failure(NoInput, BadModel): a file is
/// missing or not the one the plan was made for.
void loadInitial(RankState &state, bool verifyDigests);

/// The first weight whose initial values have NaN, of all stages. Empty when
/// none has, and where a file cannot be read.
std::string weightWithNan(const plan::Plan &plan, const std::string &folder);

/// Every tensor of the rank that training changes, after `steps` steps.
std::vector<Tensor> trainedTensors(RankState &state, int64_t steps);

/// Where weight or state `index` lies on this rank after `steps` steps (the
/// newest version); null when none of its stages has it.
char *newest(RankState &state, int index, int64_t steps);

/// The name of that value in checkpoints; empty for what does not train.
std::string newestName(const plan::Plan &plan, int index, int64_t steps);

/// The first stage that has a weight, -1 when none has.
int firstStageOf(const plan::Plan &plan, int weight);

/// The rank that answers for a weight: the first replica of the first stage
/// that has it; -1 when none has.
int ownerOf(const plan::Plan &plan, int weight);

/// The file that `file` names, found from the plan folder. Failure(NoInput).
std::string findFile(const plan::File &file, const std::string &folder);

} // namespace pipec
