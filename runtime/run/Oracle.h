//===- Oracle.h - versioned sequential SGD ----------------------*- C++ -*-===//
//
// The definition of what a strategy computes (SYSTEMS.md §1): one process, no
// pipeline, the history of all weights. Microbatches run one after the other
// through all stages; each stage reads the weight versions that the strategy's
// rule names. Same stage programs as the pipeline, other code around them.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/data/DataSource.h"
#include "runtime/exec/RankState.h"
#include "runtime/exec/TaskRunner.h"

#include <map>
#include <memory>

namespace pipec {

class Oracle {
public:
  /// Loads all stages and their initial weights.
  Oracle(const plan::Plan &plan, const std::string &folder,
         const DataSource &data, const Numbers &numbers);

  /// The next step of a training that will have `steps` in all; its loss.
  double step(int64_t steps);

  /// Steps done.
  int64_t done() const { return next; }

  /// The newest value of weight or state `index`, piece by piece; nothing when
  /// no stage has it.
  void read(int index,
            const std::function<void(const char *, int64_t)> &use) const;

  /// Bytes of the arena: all stages, one microbatch.
  int64_t peak() const { return state->arena.peak(); }

private:
  using Buffer = std::unique_ptr<char, std::function<void(char *)>>;
  struct Stage {
    StageUnit *unit;
    std::map<int64_t, Buffer> history; ///< weights by version
    int64_t updates = 0;               ///< done
    std::vector<Buffer> gradients;     ///< by replica
    std::vector<Buffer> stats;         ///< rows of this update's microbatches
    int64_t rows = 0;                  ///< of them in use
  };

  Buffer buffer(int64_t bytes) const;
  float forwardBackward(int64_t step, int64_t microbatch);
  void call(Stage &stage, PipecTask task, int64_t step, int64_t microbatch,
            int64_t version, int replica, const char *statsRow);
  void pass(const Stage &from, bool backward);
  int64_t roundOf(const Stage &stage, int64_t step) const;
  void update(const std::vector<Stage *> &stages, int64_t step, double share);
  void foldReplicas(Stage &stage);
  void foldTies(const std::vector<Stage *> &stages);
  double clip() const;
  float *gradient(int stage, int64_t offset) const;

  const plan::Plan &plan; ///< the strategy's
  plan::Plan flat;        ///< all stages on one rank, one slot of everything
  const DataSource &data;
  const Numbers &numbers;
  std::unique_ptr<RankState> state;
  std::vector<Stage> stages;
  int64_t next = 0;
};

} // namespace pipec
