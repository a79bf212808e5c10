#include "compiler/plan/FitStep.h"

#include <algorithm>
#include <functional>

namespace pipec::plan {

namespace {

/// The least share of a message's modelled time: what is too long by more is no
/// matter of messages, and others would be planned as if they cost nothing.
constexpr double kLeast = 0.05;

/// The most that turns are made longer, and as withMore() takes it the most
/// that tasks are: a thousand times.
constexpr double kMostTurns = 20e-6, kMostMore = 1000 * kMostTurns;

Topology withMessages(Topology topology, double share) {
  topology.device.turnSeconds *= share;
  topology.device.ringSeconds *= share;
  topology.device.takeSeconds *= share;
  topology.device.noteSeconds *= share;
  topology.device.seenSeconds *= share;
  topology.device.crowdSeenSeconds *= share;
  topology.device.crowdTurnSeconds *= share;
  for (Level &level : topology.levels) {
    level.latency *= share;
    level.bandwidth /= share;
  }
  return topology;
}

/// Turns that are longer; beyond what a rank may do between two tasks, longer
/// tasks. A plan of more tasks a rank does not have the more of it.
Topology withMore(Topology topology, double turns) {
  topology.device.turnSeconds += std::min(turns, kMostTurns);
  topology.device.stretchFactor = std::max(1.0, turns / kMostTurns);
  return topology;
}

} // namespace

Topology fitStep(const PlanRequest &asked, const Split &split, double seconds) {
  const IntervalCosts costs(asked.graph);
  PlanRequest request = asked;
  auto stepWith = [&](Topology topology) {
    request.topology = std::move(topology);
    return StepModel(request, costs).price(split).stepSeconds;
  };
  const bool isShort = stepWith(asked.topology) < seconds;
  // A step takes no less with longer turns or messages: halve the interval.
  double low = isShort ? 0 : kLeast, high = isShort ? kMostMore : 1;
  auto at = [&](double x) {
    return isShort ? withMore(asked.topology, x)
                   : withMessages(asked.topology, x);
  };
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (stepWith(at(middle)) < seconds ? low : high) = middle;
  }
  return at(low);
}

} // namespace pipec::plan
