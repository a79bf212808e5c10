//===- Agenda.h - which device acts next ------------------------*- C++ -*-===//
#pragma once

#include "compiler/schedule/search/Problem.h"

namespace pipec::schedule::search {

/// A wake-up time for every device and the earliest of them: a tree of groups,
/// each node the first of the least in its group. The topmost group is looked
/// through when asked only, so that few devices need no tree at all. Which of
/// them is next is as good as random: nothing here branches on it. Equal times
/// go to the lower device, so that results do not depend on how they came
/// about.
class Agenda {
public:
  explicit Agenda(int devices) {
    int nodes = devices;
    do {
      nodes = (nodes + kGroup - 1) / kGroup * kGroup;
      levels.push_back(static_cast<int>(times.size()));
      times.resize(times.size() + nodes, kNever);
      nodes /= kGroup;
    } while (nodes > 1);
    first.resize(times.size());
  }

  /// The device that acts next, and its time.
  struct Next {
    int device;
    double time;
  };
  Next next() const {
    int node = leastOf(levels.back());
    const double time = times[node];
    for (std::size_t level = levels.size(); --level > 0;)
      node = first[node];
    return {node, time};
  }

  void set(int device, double time) {
    times[device] = time;
    int node = device;
    for (std::size_t level = 1; level < levels.size(); ++level) {
      const int place = (node - levels[level - 1]) / kGroup;
      const int least = leastOf(levels[level - 1] + place * kGroup);
      node = levels[level] + place;
      times[node] = times[least];
      first[node] = least;
    }
  }
  void sooner(int device, double time) {
    if (time < times[device])
      set(device, time);
  }

private:
  static constexpr int kGroup = 8;

  /// The earlier of two nodes, the first when there is none.
  int earlier(int a, int b) const {
    return a + (b - a) * static_cast<int>(times[b] < times[a]);
  }
  int leastOf(int group) const {
    auto of = [&](int i) { return earlier(group + i, group + i + 1); };
    return earlier(earlier(of(0), of(2)), earlier(of(4), of(6)));
  }

  std::vector<int> levels;   ///< where each begins among the nodes
  std::vector<double> times; ///< by node; devices are the lowest level
  std::vector<int> first;    ///< by node above: which of its group is it
};

} // namespace pipec::schedule::search
