//===- PipeDreamRow.h - one row of PipeDream's dynamic program --*- C++ -*-===//
#pragma once

#include "compiler/plan/published/PipeDreamMemory.h"
#include "compiler/plan/published/PipeDreamSearch.h"

#include <functional>

namespace pipec::published {

/// One level's table for intervals that start at one state: best seconds with
/// at most m machines, m = 1..machines, for every end.
///
/// Only plans of at most `cap` seconds are wanted, and only ends that reach at
/// least `reach` seconds of work. A machine covers at most cap * within seconds
/// (within = machines of a component below), so an entry that leaves too much
/// for the machines it leaves is dropped: near the optimum few entries stay.
///
/// Under a memory limit an idle machine counts as if it held minibatches, so
/// that what is found fits.
class Row {
public:
  Row(const CutStates &states, const PipeDreamLevel &level, int within);

  /// Stages must fit from now on.
  void limit(const StageBytes &bytes) { kept = bytes; }

  /// What the level above exchanges for a byte of weights, in seconds:
  /// intervals that it leaves too little time for are dropped from now on.
  void exchangeAbove(double secondsPerByte) { above_ = secondsPerByte; }

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

  struct Piece {
    size_t before, after;
    int machines;
  };
  /// The stages of the best plan from `start` to `end`, first to last.
  std::vector<Piece> pieces(size_t start, size_t end, int machines) const;

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
  void findEnds(size_t start);
  void relax(size_t k, size_t j, double seconds, Range before);
  bool fits(size_t k, size_t j, int before, int used) const {
    return kept.limit <= 0 ||
           stageBytes(states, k, j, kept.behind(machines_ - before),
                      kept.copies * used) <= kept.limit;
  }
  void leaveIdle(size_t end);

  const CutStates &states;
  const int machines_;
  const double bandwidth, within;
  double cap_ = 0, above_ = 0;
  std::vector<uint32_t> ends_; ///< that the cap leaves for intervals from start
  std::vector<char> isEnd_;
  std::vector<double> value;
  std::vector<From> origin;
  std::vector<double> compute_;
  StageBytes kept;
};

/// Appends an outer stage, on the servers after those of the plan so far, and
/// the stages of its inner level.
void append(PipeDreamPlan &plan, const Row::Piece &outer, int machinesOfServer,
            const std::vector<Row::Piece> &inner);

/// At least so many machines do the work within the cap.
int machinesFor(double seconds, double cap);

/// What an outer stage on so many machines exchanges for a byte of weights;
/// the first stage's is divided by the machines of a component, as published.
double exchangePerByte(const PipeDreamLevel &level, int divisor, int machines);

/// Compute seconds from k to every state above.
void computeBetween(const CutStates &states, size_t k,
                    std::vector<double> &row);

/// Seconds of the stage between two states that computes so long on one of its
/// machines of a level; only the first stage is the one that starts at 0.
double stageSeconds(const CutStates &states, const PipeDreamLevel &level,
                    int within, size_t before, size_t after, double compute,
                    int machines);

/// What a plan of the published space takes.
double planSeconds(const CutStates &states,
                   const std::vector<PipeDreamLevel> &levels,
                   const PipeDreamPlan &plan);

} // namespace pipec::published
