//===- IntraOp.h - the integer program over operators' shardings -*- C++ -*-==//
//
// Alpa's intra-operator problem (Zheng et al., OSDI 2022, section 4): every
// operator of a stage takes one of its choices so that
//     sum_v own(v, s_v) + sum_(tensors) resharding(s_maker, s_readers)
// is least. A tensor is resharded once for each layout in which it is read, as
// it is once for each in which parts of its gradient come back: readers that
// agree share the traffic.
//
// Instead of a solver of linear programs: operators in program order, and of
// what was chosen before only the layouts of tensors that are still to be read.
// One set of choices dominates another if it costs less even with the most that
// the readers to come can pay more for its layouts (TensorCosts::excess), so
// that no optimum is lost. Chains with residuals keep some ten states. Where
// they are more than kMostStates the cheapest go on, and the result is no
// longer proven.
//
// Values come to a stage and leave it whole, as other stages send them.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/intraop/TensorCosts.h"

namespace pipec::plan {

class IntraOp {
public:
  /// `graph.sharding` must be there.
  IntraOp(const CostGraph &graph, const ShardingGroup &group);

  /// The programs of all stages that begin at one node, as they grow.
  class Sweep {
  public:
    Sweep(const IntraOp &program, size_t first);
    /// Adds nodes up to `last`.
    void growTo(size_t last);
    /// The least seconds of a microbatch, with what keeping bytes is worth.
    double seconds() const;
    /// The choices of that, and whether no others are better.
    StageSharding best() const;

  private:
    /// How a state came about; `weights` of those first read at its node.
    struct Step {
      uint32_t parent;
      OpSharding choice;
      std::vector<Layout> weights;
    };
    struct States {
      std::vector<double> costs;
      std::vector<Held> held; ///< width a state
      std::vector<Step> steps;
    };

    void add(size_t node);
    void admit(size_t node, size_t operand);
    void extend(size_t node, size_t state, const OpSharding &choice,
                States &next) const;
    double read(Held &held, size_t node, const OpSharding &choice,
                size_t operand) const;
    void settle(size_t node, States &next);
    double closing(size_t state) const;
    size_t cheapest() const;

    const IntraOp &program;
    size_t first, next;
    bool exact = true;
    std::vector<ShardedOperand> live;
    States now;
    std::vector<std::vector<Step>> history;    ///< one a node, after settling
    std::vector<std::vector<size_t>> admitted; ///< weights, one list a node
  };

private:
  const CostGraph &graph;
  const ShardingGraph &sharding;
  ShardingGroup group;
  std::vector<std::vector<OpSharding>> choices;
  std::vector<std::vector<Layout>> weightLayouts;
  double weightSeconds(size_t weight, Layout layout) const;
  const TensorCosts &costsOf(const ShardedOperand &tensor) const {
    return (tensor.isWeight ? weights : values)[tensor.tensor];
  }
  std::vector<TensorCosts> values, weights;
};

} // namespace pipec::plan
