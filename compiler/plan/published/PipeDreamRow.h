//===- PipeDreamRow.h - one row of PipeDream's dynamic program --*- C++ -*-===//
#pragma once

#include "compiler/plan/published/PipeDreamSearch.h"

#include <functional>

namespace pipec::published {

/// One level's table for intervals that start at one state: best seconds with
/// at most m machines, m = 1..machines, for every end.
///
/// Only plans of at most `cap` seconds are wanted, and only ends that reach at
/// least `reach` seconds of work. A machine covers at most cap * its devices
/// seconds, so an entry that leaves too much for the machines it leaves is
/// dropped: near the optimum few entries stay.
class Row {
public:
  /// The row of one component of a level.
  Row(const CutStates &states, const std::vector<PipeDreamLevel> &levels,
      size_t level);

  /// The component is there in as many copies as an entry's seconds ask for, at
  /// most so many; all devices together can do the work in `cap` and have so
  /// many seconds to spare. From now on an entry is dropped that wastes more,
  /// and an end that no stage of the level above has a use for.
  void copies(int most, double cap, double spare, const Row *above) {
    copies_ = most, planCap_ = cap, spare_ = spare, above_ = above;
  }

  /// What it may still do, in entries that it tries; it stops when that is
  /// spent.
  void limit(double *effort) { effort_ = effort; }

  /// Writes the compute seconds from k to each state above it, infinite where
  /// they exceed what is useful.
  using Compute = std::function<void(size_t k, std::vector<double> &row)>;

  /// Fills the row for intervals from `start`.
  void solve(size_t start, double cap, double reach, const Compute &compute);

  double best(size_t end, int machines) const {
    return value[index(end, machines)];
  }
  /// The last solution's.
  const std::vector<uint32_t> &ends() const { return ends_; }

  /// The stages of the best plan from `start` to `end`, first to last.
  std::vector<PipeDreamGroup> pieces(size_t start, size_t end,
                                     int machines) const;

private:
  /// Where a table entry comes from: the cut before its last stage and that
  /// stage's machines; `cut` = the row's own start for a single stage. No
  /// machines: one is idle, see the entry with one less.
  struct From {
    uint32_t cut = 0;
    int machines = 0;
  };
  size_t index(size_t end, int machines) const {
    return end * static_cast<size_t>(machines_) +
           static_cast<size_t>(machines - 1);
  }
  struct Range {
    int low, high;
  };
  /// What a stage behind a cut computes at most, all its machines together; the
  /// least work that it has, and the most seconds that it takes.
  struct Next {
    double compute, work, cap;
  };
  Range prefixes(size_t k, double done, double reach);
  Next nextAfter(size_t k, double done, Range range) const;
  double leastCopies(size_t start) const;
  double wasteBefore(size_t start) const;
  double copiesFor(double seconds) const;
  /// Whether a plan within the cap may have this on so many machines.
  bool isUseful(double work, int machines, double seconds) const;
  bool hasUse(bool isFirst, double weights, double compute) const;
  void findEnds(size_t start);
  void relax(size_t k, size_t j, double seconds, Range before, double cap);
  void leaveIdle(size_t end);

  const CutStates &states;
  const int machines_;
  const double bandwidth;
  const int within;     ///< machines in a component of the level below
  const double devices; ///< in a machine
  double cap_ = 0;
  int copies_ = 0; ///< 0: known to be one, or whatever the cap is for
  double planCap_ = 0, spare_ = 0;
  double least_ = 1; ///< copies, from the row's start
  double left_ = 0;  ///< to spare behind it
  const Row *above_ = nullptr;
  double *effort_ = nullptr;
  std::vector<uint32_t> ends_; ///< that the cap leaves for intervals from start
  std::vector<char> isEnd_;
  std::vector<double> value;
  std::vector<From> origin;
  std::vector<double> compute_;
};

/// At least so many machines do the work within the cap.
int machinesFor(double seconds, double cap);

/// What an outer stage on so many machines exchanges for a byte of weights;
/// the first stage's is divided by the machines of a component, as published.
double exchangePerByte(const PipeDreamLevel &level, int divisor, int machines);

/// Compute seconds from k to every state above.
void computeBetween(const CutStates &states, size_t k,
                    std::vector<double> &row);

/// Seconds of the stage between two states that computes so long on one of its
/// machines of a level; the first of a component pays for no cut.
double stageSeconds(const CutStates &states,
                    const std::vector<PipeDreamLevel> &levels, size_t level,
                    const PipeDreamGroup &stage, double compute, bool isFirst);

/// The whole model as one stage on all devices.
PipeDreamPlan dataParallelPlan(const CutStates &states,
                               const std::vector<PipeDreamLevel> &levels);

/// What a plan of the published space takes.
double planSeconds(const CutStates &states,
                   const std::vector<PipeDreamLevel> &levels,
                   const PipeDreamPlan &plan);

} // namespace pipec::published
