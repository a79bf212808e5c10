//===- Agenda.h - which device acts next ------------------------*- C++ -*-===//
#pragma once

#include "compiler/schedule/search/Problem.h"

namespace pipec::schedule::search {

/// A wake-up time for every device and the earliest of them: a tournament tree.
/// Equal times go to the lower device, so that results do not depend on how
/// they came about.
class Agenda {
public:
  explicit Agenda(int devices) {
    while (leaves < devices)
      leaves *= 2;
    times.assign(leaves, kNever);
    winner.resize(2 * leaves);
    for (int i = 0; i < leaves; ++i)
      winner[leaves + i] = i;
    for (int i = leaves - 1; i > 0; --i)
      winner[i] = winner[2 * i];
  }

  int device() const { return winner[1]; }
  double time() const { return times[winner[1]]; }
  double timeOf(int device) const { return times[device]; }

  void set(int device, double time) {
    times[device] = time;
    for (int i = (leaves + device) / 2; i > 0; i /= 2) {
      int a = winner[2 * i], b = winner[2 * i + 1];
      winner[i] = times[b] < times[a] ? b : a;
    }
  }
  void sooner(int device, double time) {
    if (time < times[device])
      set(device, time);
  }

private:
  int leaves = 1;
  std::vector<double> times;
  std::vector<int> winner;
};

} // namespace pipec::schedule::search
