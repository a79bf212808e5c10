//===- RowWithin.h - innermost components under a limit ---------*- C++ -*-===//
#pragma once

#include "compiler/plan/published/PipeDreamSearch.h"

namespace pipec::published {

/// What of a search for every plan is the same for all of its components.
struct EverySearch {
  const CutStates &states;
  const std::vector<PipeDreamLevel> &levels; ///< innermost first
  double limit;                              ///< bytes of a device
  double cap;    ///< only plans of at most so many seconds are wanted
  double effort; ///< entries and stages that may still be tried
};

/// Components of the innermost level that end at one state, some copies of
/// them before so many devices: from every state on the best seconds with at
/// most so many devices, the others of the component idle. From the end back,
/// because a stage keeps copies for the devices behind it.
class RowWithin {
public:
  explicit RowWithin(EverySearch &search);

  /// Starts of at most `reach` seconds of work before them are wanted.
  void solve(size_t end, int copies, int after, double reach);

  /// The last solution's; below its lowest start there is none.
  double best(size_t start, int devices) const {
    return start < lowest ? none : first[index(start, devices)];
  }
  size_t lowestStart() const { return lowest; }
  std::vector<PipeDreamGroup> stages(size_t start, int devices) const;

private:
  static constexpr double none = std::numeric_limits<double>::infinity();
  /// The stage that an entry begins with.
  struct From {
    uint32_t end = 0;
    int devices = 0;
  };
  size_t index(size_t state, int devices) const {
    return state * (static_cast<size_t>(machines) + 1) +
           static_cast<size_t>(devices);
  }
  void begin(size_t k, size_t j, int copies, int after);
  void close(size_t k, double reach);

  EverySearch &search;
  const int machines;
  size_t end = 0, lowest = 0;
  double cap = 0; ///< of what a component takes
  /// Of whole components, and of stages behind others of theirs.
  std::vector<double> first, rest;
  std::vector<From> firstFrom, restFrom;
  std::vector<int> fewest; ///< devices of stages behind others
};

} // namespace pipec::published
