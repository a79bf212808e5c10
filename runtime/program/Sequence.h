//===- Sequence.h - the tasks of a rank, in order ---------------*- C++ -*-===//
//
// A rank's program with every slot resolved, as a sequence that can be read at
// any index. A step program lists its tasks; a stream program is a formula
// (Plan.h), so that a run of any length takes no memory.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/StageAbi.h"
#include "runtime/program/Plan.h"

#include <array>
#include <tuple>
#include <utility>

namespace pipec::plan {

/// One call of a stage function (F: forward, B: backward, I: backward_input,
/// W: backward_weight).
struct Task {
  char kind = 'F';
  bool last = false; ///< the stage's last use of the microbatch: IN, STASH,
                     ///< GRAD_IN and WSTASH become free
  int stage = 0;
  int64_t microbatch = 0; ///< within the step; of the whole run in a stream
  int64_t local = 0;      ///< stream: the stage's round, microbatch / replicas
  std::array<int32_t, PIPEC_REGION_COUNT> slot{};
};

/// A place for one microbatch's data: stage, region, slot.
using Slot = std::tuple<int, PipecRegion, int>;
/// A message: edge, microbatch.
using Transfer = std::pair<int, int64_t>;

/// True when a task of this kind touches the region of its stage.
bool touches(char kind, PipecRegion region);

/// The region a plan calls `name`, or PIPEC_REGION_COUNT.
PipecRegion regionNamed(const std::string &name);

class Sequence {
public:
  /// One optimizer step of a step program.
  static Sequence step(const Plan &plan, int rank);

  /// Microbatches [first, last) of a stream program; `first` is a multiple of
  /// the stage's replicas. Of an incomplete last round only those replicas have
  /// tasks whose microbatch exists.
  static Sequence stream(const Plan &plan, int rank, int64_t first,
                         int64_t last);

  int64_t size() const { return count; }
  Task at(int64_t index) const;

private:
  std::vector<Task> tasks; ///< of a step
  // Of a stream: this replica does rounds [firstRound, firstRound + rounds).
  bool streaming = false;
  Task proto;
  std::array<int32_t, PIPEC_REGION_COUNT> slots{};
  int replica = 0, replicas = 1;
  int64_t warmup = 0, firstRound = 0, rounds = 0;
  int64_t count = 0;
};

/// Edges by the stage that sends or receives them, in order of their ids.
struct StageEdges {
  std::vector<int> forwardIn, forwardOut, backwardIn, backwardOut;
  const std::vector<int> &into(char kind) const {
    static const std::vector<int> none;
    return kind == 'F' ? forwardIn : kind == 'W' ? none : backwardIn;
  }
  const std::vector<int> &outOf(char kind) const {
    static const std::vector<int> none;
    return kind == 'F' ? forwardOut : kind == 'W' ? none : backwardOut;
  }
};
std::vector<StageEdges> stageEdges(const Plan &plan);

/// The rank that does microbatch k of a stage.
inline int rankOf(const Stage &stage, int64_t microbatch) {
  return stage.ranks[microbatch % static_cast<int64_t>(stage.ranks.size())];
}

/// The least common multiple of the replica counts: after this many
/// microbatches every stage of a stream has finished whole rounds.
int64_t roundLength(const Plan &plan);

/// With post-validation: how many tasks at the start of each rank's program
/// may run before the last step's update is known to stand. Forwards that
/// follow from other such ones on lower ranks; none where the loss is computed
/// or on the last rank, which knows first.
std::vector<int64_t> tasksAhead(const Plan &plan);

/// True when every step is the same calls on the same places: not of forwards
/// alone, whose outputs are read meanwhile, nor of a stream, which goes round
/// its slots.
bool repeats(const Plan &plan);

/// True when a program consists of forwards alone.
bool forwardOnly(const Plan &plan);

} // namespace pipec::plan
