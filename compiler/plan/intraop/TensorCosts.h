//===- TensorCosts.h - what a tensor's readers pay for its layout -*- C++ -*-=//
#pragma once

#include "compiler/plan/intraop/OpChoices.h"

#include <tuple>
#include <utility>

namespace pipec::plan {

/// A tensor that is still to be read: how it lies, and what was paid for.
struct Held {
  Layout layout = kWhole;
  /// Layouts as bits: those it was brought to, forward and, of weights,
  /// `again` backward, and those that gradients came back from.
  uint32_t read = 0, again = 0, gradient = 0;
  bool operator==(const Held &) const = default;
};

/// A value's or weight's traffic from any layout to any other.
class TensorCosts {
public:
  /// `choices` of every node.
  TensorCosts(const CostGraph &graph, const ShardingGroup &group,
              ShardedOperand tensor,
              const std::vector<std::vector<OpSharding>> &choices);

  /// Seconds until it lies as `wanted`.
  double read(Layout held, Layout wanted) const {
    return reads[at(held, wanted)];
  }
  /// Seconds until its gradient lies as it does itself; of a weight's, of which
  /// a step does that once, those of a microbatch, and what the bytes are worth
  /// in which addends are summed till then.
  double gradient(Layout leaves, Layout held) const {
    return gradients[at(leaves, held)];
  }
  bool isReadAfter(size_t node) const {
    return !uses.empty() && uses.back().node > node;
  }

  /// The most that readers from node `next` on, and whoever gets it whole
  /// behind the stage, can cost more where it is held as `a` than as `b`.
  double excess(const Held &a, const Held &b, size_t next) const;

private:
  /// One operand of a node: the layouts in which it may read the tensor and
  /// leave its gradient, and whether it reads it backward, too.
  struct Use {
    size_t node = 0;
    bool again = false;
    std::vector<std::pair<Layout, Layout>> ways;
  };
  size_t at(Layout from, Layout to) const {
    return static_cast<size_t>((from - kPartial) * kinds + to - kPartial);
  }

  int kinds = 0; ///< of layouts
  bool isSent = false;
  std::vector<double> reads, gradients;
  std::vector<Use> uses; ///< in the order of nodes
  /// Layouts of all uses from one on, as bits.
  std::vector<Held> wanted;
};

inline bool isSame(const ShardedOperand &a, const ShardedOperand &b) {
  return a.isWeight == b.isWeight && a.tensor == b.tensor;
}

inline uint32_t layoutBit(Layout layout) {
  return uint32_t(1) << (layout - kPartial);
}

} // namespace pipec::plan
