//===- ComponentsWithin.h - components below a limit ------------*- C++ -*-===//
//
// What a component of a level does best under a memory limit depends on how
// many copies of it there are and on the devices behind them. The innermost
// level's is a Row; that of a level above is tabulated from those below it, for
// the copies and the devices behind that each of its stages gives them.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/PipeDreamRow.h"

#include <map>
#include <tuple>

namespace pipec::published {

/// Components of the level below the outermost one.
class ComponentsWithin {
public:
  ComponentsWithin(const CutStates &states,
                   const std::vector<PipeDreamLevel> &levels, double limit);

  /// From k on, one for each of `servers` before `after` others, for plans of
  /// at most `cap` seconds, which never grows; ends reach at least so many
  /// seconds of work.
  void solve(size_t k, double cap, int servers, int after, double reach);

  /// The last solution's.
  const std::vector<uint32_t> &ends() const;
  double best(size_t end) const;
  std::vector<PipeDreamGroup> stages(size_t end);
  /// Entries that it took.
  double effort() const { return effort_; }

private:
  /// A component of some level that starts at `start`.
  struct Place {
    size_t level, start;
    int copies, after; ///< devices behind
    bool operator<(const Place &other) const {
      return std::tie(level, start, copies, after) <
             std::tie(other.level, other.start, other.copies, other.after);
    }
  };
  /// The stage that an entry ends with; no machines: one more is idle.
  struct From {
    uint32_t cut = 0;
    int machines = 0;
  };
  struct Table {
    std::vector<double> value;
    std::vector<From> origin;
  };
  size_t index(size_t level, size_t end, int machines) const {
    return end * (static_cast<size_t>(levels[level].machines) + 1) +
           static_cast<size_t>(machines);
  }
  void solveRow(const Place &place, double reach);
  Table tabulate(const Place &place);
  void expand(const Place &place, Table &table, size_t k, int before);
  const std::vector<double> &bestOf(const Place &place);
  Place below(const Place &place, size_t k, int used, int left) const;
  std::vector<PipeDreamGroup> stagesOf(const Place &place, const Table &table,
                                       size_t end);

  const CutStates &states;
  const std::vector<PipeDreamLevel> &levels;
  const double limit;
  double cap_ = 0, effort_ = 0;
  Row row; ///< of the innermost level
  Place solved{};
  Table table;                 ///< of more than two levels
  std::vector<uint32_t> ends_; ///< the same
  /// Of components of the levels below, in full, a component's best from its
  /// start to every state.
  std::map<Place, std::vector<double>> known;
};

} // namespace pipec::published
