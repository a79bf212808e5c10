//===- IntervalCosts.h - what a stage of nodes [first, last] costs -*- C++ -*-//
#pragma once

#include "compiler/plan/CostGraph.h"

#include <unordered_map>

namespace pipec::plan {

/// Everything about a candidate stage that follows from its interval alone.
/// Seconds for one microbatch on one device; bytes as in CostGraph.
struct StageCost {
  double forwardSeconds = 0, backwardInputSeconds = 0,
         backwardWeightSeconds = 0;
  int64_t parameterBytes = 0; ///< trainable
  int64_t roundedBytes = 0;   ///< copies of those in a narrower type
  int64_t stateBytes = 0;     ///< not trainable
  int64_t stashBytes = 0;     ///< one microbatch
  int64_t workspaceBytes = 0;
  int64_t againBytes = 0; ///< the same where all activations are computed again
  int64_t receiveBytes = 0;         ///< values from earlier stages
  int64_t receiveGradientBytes = 0; ///< their gradients, sent back
  int64_t inputBytes = 0;           ///< data that is read
  int64_t sendBytes = 0;            ///< values for later stages, not kept here
  int64_t sendGradientBytes = 0; ///< gradients that later stages send back: of
                                 ///< what is made here, and of what they read
                                 ///< as well
  int64_t handoverBytes = 0;     ///< from input to weight gradients
  int64_t useBytes = 0;          ///< gradients of further uses of weights

  /// Of a version.
  int64_t weightBytes() const { return parameterBytes + roundedBytes; }

  double seconds() const {
    return forwardSeconds + backwardInputSeconds + backwardWeightSeconds;
  }
};

/// Prices intervals exactly, shared tensors counted once. A Sweep fixes the
/// first node and grows the interval node by node, in time proportional to the
/// tensors the new node touches (and to the logarithm of how many amounts it
/// may work in); O(nodes + touches) for all intervals that start at one node.
/// Sweeps keep nothing; cost() keeps a table of the pairs it was asked for.
class IntervalCosts {
  struct Touch;

public:
  explicit IntervalCosts(const CostGraph &graph);

  size_t nodes() const { return offsets.size() - 1; }

  class Sweep {
  public:
    Sweep(const IntervalCosts &costs, size_t first)
        : costs(costs), first(first), next(first) {
      sum.forwardSeconds = costs.forwardTask;
      sum.backwardInputSeconds = costs.backwardTask;
    }
    /// Adds node `next` and returns the interval's cost so far.
    const StageCost &grow();
    /// Grows until `last` is inside.
    const StageCost &growTo(size_t last);
    const StageCost &cost() const { return sum; }

  private:
    void addInside(const Touch &touch);
    void addFirst(const Touch &touch);

    const IntervalCosts &costs;
    size_t first, next;
    int64_t repeated = 0; ///< computed again when node `next` runs backwards
    StageCost sum;
  };

  /// Searches ask for the same intervals again and again: they are remembered.
  const StageCost &cost(size_t first, size_t last) const;

private:
  enum class Tensor : unsigned char {
    Parameter,
    Rounded,
    State,
    Stash,
    Again,
    Input,
    Value,
    Relayed,
    Sent,
    Handover,
    Use
  };
  /// A node touches a tensor: it counts for an interval when the touch before
  /// it lies outside, and, for a value, its producer too; what is sent and
  /// handed over when it lies inside. A gradient goes from each stage that
  /// reads the value to the one before, which adds its own (Relayed), and to
  /// the producer's. `previous` is one more than the node of
  /// that touch, 0 for none. What was made before `from` is not kept: it is
  /// received.
  struct Touch {
    Tensor tensor;
    size_t previous;
    int64_t bytes, gradientBytes;
    size_t from = CostValue::kNone;
  };
  /// What a stage works in at a node that begins before `previous`; those of a
  /// node with what reaches furthest back last, which is then the most.
  struct Works {
    size_t previous;
    int64_t bytes;
  };
  int64_t worksAt(size_t node, size_t first) const;
  void addWorks(const CostGraph &graph);

  double forwardTask = 0, backwardTask = 0;
  bool knowsAgain = false;   ///< else what is computed again is the stash
  std::vector<CostNode> own; ///< per-node parts (ids empty)
  std::vector<Touch> touches;
  std::vector<size_t>
      offsets; ///< touches of node i: [offsets[i], offsets[i+1])
  /// Up to here those that count once the touch before lies inside, the latest
  /// of these first; from here on what counts while it does not, the earliest
  /// first.
  std::vector<size_t> insides;
  std::vector<Works> works;
  std::vector<size_t> worksOffsets;                      ///< as offsets
  mutable std::unordered_map<uint64_t, StageCost> known; ///< of intervals
};

} // namespace pipec::plan
