//===- StageMemory.h - where a stage's regions lie --------------*- C++ -*-===//
#pragma once

#include "runtime/Arena.h"
#include "runtime/StageAbi.h"
#include "runtime/program/Plan.h"

#include <array>

namespace pipec {

/// The regions of one stage on one rank, every slot and version of them.
class StageMemory {
public:
  /// Takes the stage's regions from the arena; `workspace` is the rank's. With
  /// a `holder` the weights and all that goes with them are that stage's.
  StageMemory(const plan::Stage &stage, Arena &arena, char *workspace,
              const StageMemory *holder = nullptr);

  /// Start of a region's slot.
  char *at(PipecRegion region, int64_t slot = 0) const {
    return base[region] + slot * stride[region];
  }
  /// Start of the weights of version v (kept at v modulo the stage's count).
  char *weights(int64_t version) const {
    return base[PIPEC_WEIGHTS] + version % versions * stride[PIPEC_WEIGHTS];
  }
  /// Bytes of one slot, as the plan states them.
  int64_t bytes(PipecRegion region) const { return size[region]; }

private:
  std::array<char *, PIPEC_REGION_COUNT> base{};
  std::array<int64_t, PIPEC_REGION_COUNT> stride{}, size{};
  int versions = 1;
};

} // namespace pipec
