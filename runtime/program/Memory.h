//===- Memory.h - the bytes a rank allocates --------------------*- C++ -*-===//
//
// One definition of a rank's memory, used by the compiler (which states it in
// the plan) and by the runtime (which allocates exactly that).
//
// A rank's arena holds, every piece rounded up to 64 bytes:
//   * one workspace, the largest of its stages';
//   * per stage: weights x versions, and constants, gradients, optimizer,
//     state, stats, in, stash, out, grad_in, grad_out, wstash, each x its
//     slots;
//   * one line of 64 bytes for the loss of a stage that computes it;
//   * with post-validation and clipping, on all ranks but the last: the weights
//     and optimizer state from before the update that may have to be undone;
//   * one scratch for collectives (reducing gradients over replicas, folding
//     tied weights, exchanging statistics), the largest that any of them needs.
// Not in it, and of constant size: 1 MiB to stream tensors to files at the end.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/program/Plan.h"

namespace pipec::plan {

constexpr int64_t kAlignment = 64;

/// Tensors travel to files and from them in pieces of this many bytes.
constexpr int64_t kPieceBytes = 1 << 20;

/// Collectives work on pieces of at most this many bytes: what a processor's
/// cache holds, or what a GPU's links need to be fast.
int64_t pieceBytes(const Plan &plan);

/// Bytes of a rank's arena, by what they are for. `stash`: stash and wstash.
struct RankMemory {
  int64_t weights = 0, gradients = 0, optimizer = 0, stash = 0, workspace = 0,
          other = 0;
  int64_t total() const {
    return weights + gradients + optimizer + stash + workspace + other;
  }
};

int64_t alignUp(int64_t bytes);

/// Region `name` of a stage; an empty one when the stage does not list it.
Region regionOf(const Stage &stage, const std::string &name);

/// The stage whose weights and all that goes with them `stage` uses: itself, or
/// for a later piece of a sequence the stage of the first.
int weightsStage(const Plan &plan, int stage);

RankMemory rankMemory(const Plan &plan, int rank);

/// rankMemory(plan, rank).total().
int64_t rankBytes(const Plan &plan, int rank);

/// The part of `other` that is scratch for collectives.
int64_t scratchBytes(const Plan &plan, int rank);

/// The part of `other` that holds what an update may have to go back to.
int64_t undoBytes(const Plan &plan, int rank);

/// The bytes of one replica's slice when `bytes` of gradients are reduced over
/// `replicas`: contiguous, aligned, the last one may be shorter.
int64_t sliceBytes(int64_t bytes, int replicas);

/// Weights whose gradient has several uses, on one stage or on several.
struct Tie {
  struct Use {
    int index = 0; ///< global index of the use: the order of the fold
    int stage = 0;
    int64_t offset = 0; ///< of its accumulator in the stage's GRADIENTS
  };
  int weight = 0;
  int64_t bytes = 0;     ///< of the gradient (float32)
  std::vector<Use> uses; ///< by ascending index
  /// (stage, offset of gradients[0]) of every copy: where the total goes.
  std::vector<std::pair<int, int64_t>> copies;
};

/// The ranks that add up a shared weight's gradient, a slice each: the first
/// replica of every stage that has it, each rank once, by stage.
std::vector<int> tieLeads(const Plan &plan, const Tie &tie);

/// By ascending weight.
std::vector<Tie> ties(const Plan &plan);

} // namespace pipec::plan
