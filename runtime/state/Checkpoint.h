//===- Checkpoint.h - saving and resuming -----------------------*- C++ -*-===//
//
// DIR/step-00000020/ holds a safetensors shard per rank and commit.json, which
// names the shards with their sizes and digests. It is written as
// DIR/.writing-00000020 and renamed when everything is on the disk; only then
// the one before it goes away. So DIR holds a whole checkpoint at any time.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/exec/Council.h"
#include "runtime/exec/RankState.h"
#include "runtime/state/Safetensors.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

namespace pipec {

/// What must be the same when a run goes on, and marks of its data and its
/// --lr-schedule, which may be other.
struct RunIdentity {
  uint64_t seed = 0;
  std::optional<uint64_t> shuffle;
  std::map<std::string, std::string> data = {};
  std::string rate = {};
};

/// Writes a checkpoint after `steps` steps; all ranks call it together.
/// Failure(CannotWrite) on all of them when any cannot; DIR is then as before.
void saveCheckpoint(RankState &state, Council &council,
                    const std::string &folder, int64_t steps,
                    const RunIdentity &identity);

/// Failure(Usage) when `folder` holds checkpoints of a run other than the one
/// that goes on from `resumed` (empty: none does): saving would remove them.
void refuseToReplace(const std::string &folder, const std::string &resumed);

/// Said before the training: could a checkpoint be written? Leaves nothing.
/// Failure(CannotWrite).
void expectCheckpoints(const std::string &folder);

/// The newest checkpoint in a folder.
class Checkpoint {
public:
  /// Reads the commit record. `folder` may also be the checkpoint itself.
  /// Failure(NoInput) when there is none, Failure(BadPlan) when it is damaged
  /// or does not go with the plan, Failure(Usage) for options that differ from
  /// the identity, if it is given.
  Checkpoint(const std::string &folder, const plan::Plan &plan,
             const std::string &planFolder,
             const std::optional<RunIdentity> &identity);

  int64_t steps = 0;
  std::string precision; ///< of the training; empty when it does not say
  std::map<std::string, std::string> data; ///< marks, by input; may be empty
  std::string rate; ///< its --lr-schedule; empty when it does not say

  /// "the checkpoint of step 20, 1f03c6…": the same for ranks that read the
  /// same one.
  std::string mark() const;

  /// Numbers of the optimizer and "clip-norm" (0: none) that differ: what it
  /// was trained with, and the plan's.
  std::map<std::string, std::pair<double, double>>
  otherSettings(const plan::Plan &plan) const;

  /// Reads what the rank's stages need; checks the digests of its share of the
  /// shards, so that all ranks together check all. Failure(BadPlan).
  void load(RankState &state) const;
  /// The same for a plan that does not train: the tensors that `training`, the
  /// plan the checkpoint is of, has trained.
  void loadTrained(RankState &state, const plan::Plan &training) const;

private:
  /// All shards' headers, and where each tensor is.
  struct Shards {
    using Place = std::pair<const Safetensors *, const Safetensors::Entry *>;
    std::vector<std::unique_ptr<Safetensors>> files;
    std::map<std::string, Place> places;
  };
  Shards open(int rank, int ranks) const;
  void read(const Shards &open, const Tensor &tensor, Device &device) const;
  struct Shard {
    std::string file, sha256;
    int64_t bytes = 0;
  };
  void checkShard(const Shard &shard, bool digest) const;

  std::string path;
  std::vector<Shard> shards;
  std::map<std::string, double> settings; ///< empty when it does not say
};

} // namespace pipec
