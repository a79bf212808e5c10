//===- StageMemory.cpp - where a stage's regions lie ----------------------===//
#include "runtime/StageMemory.h"
#include "runtime/program/Memory.h"
#include "runtime/program/Sequence.h"

namespace pipec {

StageMemory::StageMemory(const plan::Stage &stage, Arena &arena,
                         char *workspace, const StageMemory *holder)
    : versions(stage.versions) {
  for (auto &[name, region] : stage.regions) {
    const PipecRegion id = plan::regionNamed(name);
    size[id] = region.bytes;
    stride[id] = plan::alignUp(region.bytes);
    if (id == PIPEC_WORKSPACE)
      continue;
    const int64_t copies = id == PIPEC_WEIGHTS ? versions : region.slots;
    base[id] = arena.take(stride[id] * copies);
  }
  base[PIPEC_WORKSPACE] = workspace;
  if (holder)
    for (PipecRegion id : {PIPEC_CONSTANTS, PIPEC_WEIGHTS, PIPEC_GRADIENTS,
                           PIPEC_OPTIMIZER, PIPEC_STATE})
      base[id] = holder->base[id], stride[id] = holder->stride[id];
  if (stage.computes_loss)
    base[PIPEC_LOSS] = arena.take(sizeof(float));
  // Absent regions are empty, but their base is aligned and not null.
  for (char *&piece : base)
    if (!piece)
      piece = workspace;
}

} // namespace pipec
