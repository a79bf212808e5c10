#include "compiler/plan/FitStep.h"

#include <algorithm>
#include <functional>

namespace pipec::plan {

namespace {

/// The least share of a message's modelled time: what is too long by more is no
/// matter of messages, and others would be planned as if they cost nothing.
constexpr double kLeast = 0.05;

Topology withMessages(Topology topology, double share) {
  topology.device.turnSeconds *= share;
  topology.device.ringSeconds *= share;
  for (Level &level : topology.levels) {
    level.latency *= share;
    level.bandwidth /= share;
  }
  return topology;
}

Topology withTurns(Topology topology, double more) {
  topology.device.turnSeconds += more;
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
  double low = isShort ? 0 : kLeast, high = isShort ? seconds : 1;
  auto at = [&](double x) {
    return isShort ? withTurns(asked.topology, x)
                   : withMessages(asked.topology, x);
  };
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (stepWith(at(middle)) < seconds ? low : high) = middle;
  }
  return at(low);
}

} // namespace pipec::plan
