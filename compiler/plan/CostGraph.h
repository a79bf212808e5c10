//===- CostGraph.h - what the planner knows about a model -------*- C++ -*-===//
//
// A model as the planner sees it: forward operators in program order with their
// times, and every byte that can be kept, copied or sent. A stage is an
// interval [first, last] of nodes; values, weights and stashes name the nodes
// that touch them, so what a stage keeps and what crosses a cut is exact and
// not the sum of per-node guesses.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/intraop/ShardingGraph.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pipec::plan {

/// One forward operator. Times are seconds for one microbatch on one device;
/// byte counts are for one microbatch (stash, workspace) or once (the rest).
struct CostNode {
  std::string id;   ///< unique, stable name (messages and plans use it)
  std::string name; ///< what a person calls it; may be empty
  double forwardSeconds = 0;
  double backwardInputSeconds = 0;
  double backwardWeightSeconds = 0;
  double flops = 0; ///< of the forward
  /// Trainable weights (fp32 master) that no other node uses. Weights with
  /// several users belong in CostGraph::weights.
  int64_t parameterBytes = 0;
  /// Bytes the node needs all the time that do not train: running statistics,
  /// frozen weights, constants.
  int64_t stateBytes = 0;
  /// Activations kept from this node's forward to its backward that no other
  /// node keeps. Tensors several nodes keep belong in CostGraph::stashes.
  int64_t stashBytes = 0;
  /// Scratch while the node runs; a stage needs the largest of its nodes.
  int64_t workspaceBytes = 0;
};

/// A tensor that flows from one node to others. It crosses from its producer's
/// stage to each other stage that consumes it, once per consuming stage; a
/// gradient of `gradientBytes` comes back from each.
struct CostValue {
  size_t producer = 0;
  int64_t bytes = 0;
  int64_t gradientBytes =
      0; ///< 0 for integer values and what needs no gradient
  std::vector<size_t> consumers;
  /// The first node whose backward reads it: a stage that has it and the
  /// producer sends it from where it keeps it. Past the end: none does.
  size_t keptFrom = kNone;
  static constexpr size_t kNone = static_cast<size_t>(-1);
};

/// A weight and its users. Every stage with a user holds a copy; trainable
/// copies in several stages sum their gradients across these stages.
struct CostWeight {
  std::string name;
  int64_t bytes = 0;
  std::vector<size_t> users;
  bool trainable = true;
  /// The nodes of which each adds a gradient of its own, all of which are
  /// summed; none: the users.
  std::vector<size_t> uses{};
};

/// A weight rounded to a narrower type, which every stage with a user keeps
/// beside it, as often as the weight.
struct CostCopy {
  int64_t bytes = 0;
  std::vector<size_t> users;
  size_t weight = 0; ///< in CostGraph::weights
};

/// A tensor kept from forward to backward by every stage with a user; but for
/// that of its producer, where it is known, they have received it, and keep
/// what they receive anyway.
struct CostStash {
  int64_t bytes = 0;
  std::vector<size_t> users;
  size_t producer = CostValue::kNone;
};

/// What is kept of one microbatch.
inline int64_t bytesOf(const std::vector<CostStash> &kept) {
  int64_t bytes = 0;
  for (const CostStash &one : kept)
    bytes += one.bytes;
  return bytes;
}

/// What the backward makes at one of the nodes for the gradients that others
/// wait for, and reads at the other one for those of weights: where the two are
/// separate tasks a stage with both nodes hands it from the one to the other.
struct CostHandover {
  size_t first = 0, last = 0;
  int64_t bytes = 0;
};

/// What code of a stage that holds both nodes works in at one of them: values
/// that live in no slot. A stage needs the largest of its own.
struct CostScratch {
  size_t first = 0, last = 0;
  int64_t bytes = 0;
};

/// The model in program order. Node indices everywhere are positions in
/// `nodes`.
struct CostGraph {
  std::vector<CostNode> nodes;
  std::vector<CostValue> values;
  std::vector<CostWeight> weights;
  std::vector<CostCopy> rounded;
  std::vector<CostStash> stashes;
  std::vector<CostStash> inputs; ///< data that nodes read, of a microbatch
  std::vector<CostHandover> handovers;
  std::vector<CostScratch> scratch;
  /// Gradients of a weight's further uses: from the use before on.
  std::vector<CostHandover> furtherUses;
  /// Tensors that a stage with a user holds at once, of one microbatch, where
  /// it computes all activations again; none: what it would have kept.
  std::vector<CostStash> repeats;
  /// Groups of nodes that must share a stage.
  std::vector<std::vector<size_t>> pinTogether;
  /// Measured time of the optimizer's update; 0: the device model's.
  double updateSecondsPerByte = 0;
  /// Bytes of rounded copies that it writes for a byte of trainable weights.
  double roundedShare = 0;
  /// What a task costs however little it computes; in a stage once, of the
  /// backward where one is computed.
  double forwardTaskSeconds = 0, backwardTaskSeconds = 0;
  /// How the devices of a group may divide nodes; null: not known.
  std::shared_ptr<const ShardingGraph> sharding;
};

/// Throws Failure(Exit::BadModel) naming the first offence: no nodes, a
/// duplicate id, a negative or non-finite cost, an index out of range, a
/// consumer at or before its producer.
void checkCostGraph(const CostGraph &graph);

/// Nodes in `[legal.front()=0 …]` before which a stage may start: positions 0
/// and every position no pinned group spans. Ascending.
std::vector<size_t> legalStarts(const CostGraph &graph);

} // namespace pipec::plan
