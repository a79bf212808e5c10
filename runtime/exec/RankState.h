//===- RankState.h - the stages of a rank, loaded ---------------*- C++ -*-===//
#pragma once

#include "runtime/Arena.h"
#include "runtime/StageLibrary.h"
#include "runtime/StageMemory.h"
#include "runtime/device/Device.h"
#include "runtime/program/Plan.h"

#include <memory>
#include <vector>

namespace pipec {

/// A stage on this rank.
struct StageUnit {
  const plan::Stage *stage;
  int replica; ///< this rank is stage->ranks[replica]
  StageLibrary library;
  StageMemory memory;
  PipecDevice *device; ///< what its frames have

  int replicas() const { return static_cast<int>(stage->ranks.size()); }
  /// The one rank that writes and sends this stage's tensors.
  bool leads() const { return replica == 0; }
};

/// All memory and code of one rank.
class RankState {
public:
  /// Loads the stage programs and allocates; weights are not read yet.
  RankState(const plan::Plan &plan, const std::string &folder, int rank,
            std::unique_ptr<Device> device);

  const plan::Plan &plan;
  const std::string folder;
  const int rank;
  const bool trains; ///< false for a plan of forwards alone

  const std::unique_ptr<Device> device;
  Arena arena;
  std::vector<std::unique_ptr<StageUnit>> units; ///< by ascending stage
  char *scratch;                                 ///< scratchBytes of the plan
  char *undo;                                    ///< undoBytes of the plan

  /// The unit of a stage on this rank.
  StageUnit &unit(int stage) { return *byStage[stage]; }
  bool has(int stage) const { return byStage[stage] != nullptr; }

  /// "rank 1 (stage 1)", "rank 0 (stages 0, 4)".
  std::string name() const { return nameOf(plan, rank); }
  static std::string nameOf(const plan::Plan &plan, int rank);

private:
  std::vector<StageUnit *> byStage;
};

/// float elements of a region of floats.
inline float *floats(char *data) { return reinterpret_cast<float *>(data); }

/// Elements of a weight.
int64_t elements(const plan::Weight &weight);

} // namespace pipec
