//===- RowWithin.h - innermost components under a limit ---------*- C++ -*-===//
#pragma once

#include "compiler/plan/published/PipeDreamSearch.h"

namespace pipec::published {

/// What of a search for every plan is the same for all of its components.
struct EverySearch {
  const CutStates &states;
  const std::vector<PipeDreamLevel> &levels; ///< innermost first
  double limit;                              ///< bytes of a device
  double floor;  ///< plans of so many seconds and of fewer are as good
  double cap;    ///< only plans of at most so many seconds are wanted
  double effort; ///< entries and stages that may still be tried
  /// Bytes of tables and components at a time.
  size_t mostHeld = 128'000'000;
  /// Sums of 1/n: a stage of r replicas with n devices from it on keeps no more
  /// than r/n of the limit, and that is at most 1/n and 1/(n-1) and so on of
  /// its replicas together.
  std::vector<double> share;
  /// The most weights, and the most that is kept, of a state and all before it.
  std::vector<double> mostWeights, mostKept;

  EverySearch(const CutStates &states,
              const std::vector<PipeDreamLevel> &levels, double limit,
              double effort);
  /// What so many devices hold before others.
  double room(int devices, int after) const {
    return limit * (share[static_cast<size_t>(after + devices)] -
                    share[static_cast<size_t>(after)]);
  }
};

/// Components of a level that end at a state, some copies of them before so
/// many devices, in stages of the level above.
struct AskedComponents {
  size_t end;
  int copies, after;
  /// What the stage above exchanges for a byte of weights, in seconds: at most,
  /// at least, and at least when it is the model's first.
  double mostExchange = 0, exchange = 0, firstExchange = 0;
  /// Up to so many seconds of the stage above all are as good.
  double floor = 0;
  /// Starts of at most so many seconds of work before them are wanted.
  double reach = std::numeric_limits<double>::infinity();
};

/// What the stage above exchanges is time that its components do not have. A
/// start is far enough in front where that or the work takes too long, or where
/// memory does not hold it.
class ComponentBounds {
public:
  ComponentBounds(const EverySearch &search, const AskedComponents &asked,
                  int devices);
  /// No start is below.
  size_t lowest() const { return lowest_; }
  /// All that takes less is as good.
  double floor() const { return floor_; }
  /// What a component from a state or from further in front may take.
  double most(size_t state) const {
    return cap - perByte * (states.weights[end] - states.weights[state]);
  }

private:
  const CutStates &states;
  const size_t end;
  const double cap;
  double perByte;
  size_t lowest_;
  double floor_;
};

/// Components of the innermost level: from every state on the best seconds with
/// at most so many devices, the others of the component idle. From the end
/// back, because a stage keeps copies for the devices behind it.
class RowWithin {
public:
  explicit RowWithin(EverySearch &search);

  void solve(const AskedComponents &asked);

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
  /// A stage of a component that is begun: from its first state to its second.
  struct Begun {
    size_t k, j;
    double most; ///< what the component may take
    bool isStart;
    int least; ///< devices for the work
  };
  void start(size_t k, double most, double reach);
  void begin(const Begun &stage);
  void close(size_t k, double most, double reach);

  EverySearch &search;
  const int machines;
  size_t end = 0, lowest = 0;
  double floor = 0; ///< of what a component takes
  /// Of whole components, and of stages behind others of theirs.
  std::vector<double> first, rest;
  std::vector<From> firstFrom, restFrom;
  std::vector<int> fewest; ///< devices of stages behind others
  /// That a stage before so many devices of its component is kept, on so many.
  std::vector<double> times;
  /// Seconds for what crosses a cut and for a byte of weights, of a stage on so
  /// many devices, on all of them together; of one of so many a device's part.
  std::vector<double> crossing, exchange, part;
};

} // namespace pipec::published
