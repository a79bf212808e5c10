//===- ChainSearch.h - best cuts for given replicas -------------*- C++ -*-===//
//
// A dynamic program over the chain, from the last stage to the first. What a
// stage needs to know about the rest, its in-flight count, weight versions and
// the way back for a gradient, depends on the stages after it only, so a suffix
// is summarized by a few numbers (Label) and dominated suffixes are dropped.
//
// Cost: with N legal starts and K stages about N*w labels per stage count, w
// the number of starts inside one stage's window; a first plan from a greedy
// packing closes the windows. A few thousand nodes take milliseconds.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/StepModel.h"

#include <limits>
#include <optional>

namespace pipec::plan {

/// Surrogate of the step time: `fill` seconds of one microbatch through the
/// pipeline and back, `pace` (and for GPipe `paceBack`) seconds per further
/// microbatch, `tail` seconds after the last backward.
struct Pace {
  double fill = 0, pace = 0, paceBack = 0, tail = 0;
};

class ChainSearch {
public:
  /// Starts are restricted to `starts` (ascending, first 0).
  ChainSearch(const StepModel &model, std::vector<size_t> starts);

  /// Best split into replicas.size() stages under the surrogate, or nothing
  /// when none fits. `inside` as in Split.
  /// Nothing either when every plan is slower than `atMost`. With `labels`,
  /// only
  /// so many suffixes are kept per start and stage count: fast, no longer
  /// exact.
  std::optional<Split>
  best(const std::vector<int> &replicas, bool inside,
       double atMost = std::numeric_limits<double>::infinity(),
       size_t labels = std::numeric_limits<size_t>::max()) const;

  /// What a stage may take in even shares of its device's memory, 1 at first.
  void setShare(double share);

  /// How many suffixes to keep for so many stages: all while there are few
  /// places, then as many as large models can afford.
  size_t labelsFor(size_t stages) const;

  /// Surrogate of a split, for ranking; +inf when it does not fit.
  double surrogate(const Split &split) const;

  /// No split into stages of so many replicas has a smaller surrogate. O(1).
  double leastSurrogate(const std::vector<int> &replicas) const;

  /// Smallest limit under which `replicas.size()` stages fit, by greedy
  /// packing; `known` where that is no less.
  int64_t smallestLimit(const std::vector<int> &replicas,
                        int64_t known = kMostBytes) const;
  /// The split that the packing comes to under that limit of a stage.
  std::optional<Split> packed(const std::vector<int> &replicas,
                              int64_t limit) const;
  static constexpr int64_t kMostBytes = int64_t(1) << 60;

private:
  struct Slots;
  struct Front;
  class Ends;
  struct Label;
  struct Table;
  class OpenStages;
  Slots slots(const std::vector<int> &replicas, bool inside) const;
  bool mayFitLonger(const ByteRates &bytes, const Keeps &keeps,
                    int64_t limit) const;
  std::optional<std::vector<size_t>> pack(const Slots &slots, double seconds,
                                          int64_t limit) const;
  std::optional<Split> greedy(const Slots &slots) const;
  Split splitAt(std::vector<size_t> cuts, const Slots &slots,
                int64_t limit) const;
  Front front(const StageCost &cost, const Slots &slots, size_t stage,
              bool recompute) const;
  static Pace extend(const Pace &suffix, const Front &front);
  double objective(const Pace &pace, const Slots &slots) const;
  double largestPace(double objectiveLimit, const Slots &slots) const;
  void extendLabels(size_t i, size_t end, size_t k, const Front &front,
                    bool recompute, Table &table) const;
  void extendSuffixes(size_t i, Table &table) const;

  const StepModel &model;
  int64_t stageLimit;         ///< bytes
  std::vector<size_t> starts; ///< candidate first nodes
  std::vector<double>
      work; ///< seconds of nodes before starts[i]; one more at the end
  /// What intervals cost, by their start and in the order of their ends: every
  /// shape asks for them again.
  struct Row {
    IntervalCosts::Sweep sweep;
    std::vector<StageCost> costs;
  };
  mutable std::vector<Row> rows;
  mutable size_t kept = 0; ///< costs in all rows
};

} // namespace pipec::plan
