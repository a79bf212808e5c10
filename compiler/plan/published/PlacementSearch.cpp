#include "compiler/plan/published/PlacementSearch.h"

#include "compiler/plan/published/ContiguousWithin.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace pipec::published {

namespace {
constexpr double inf = std::numeric_limits<double>::infinity();
}

double placementLoad(const PlacementUnits &units,
                     const std::vector<char> &member, bool cpu) {
  double load = 0;
  for (int u = 0; u < units.size(); ++u)
    if (member[u])
      load += cpu ? units.cpuLatency[u] : units.latency[u];
  if (cpu)
    return load;
  for (const Transfer &t : units.transfers) {
    size_t inside = 0;
    for (int c : t.consumers)
      inside += member[c] != 0;
    if (member[t.producer] ? inside < t.consumers.size() : inside > 0)
      load += t.cost;
  }
  return load;
}

double placementBound(const PlacementUnits &units,
                      const PlacementMachine &machine) {
  const Offload offload(units);
  double total = 0, largest = 0;
  for (int u = 0; u < units.size(); ++u) {
    bool cpu = machine.cpus > 0,
         accelerator = machine.accelerators > 0 && units.onAccelerator[u];
    total += units.latency[u];
    double least = std::min(cpu ? units.cpuLatency[u] : inf,
                            accelerator ? units.latency[u] : inf);
    if (std::isfinite(least))
      largest = std::max(largest, least);
  }
  double low = largest, high = std::max(largest, total);
  if (machine.accelerators == 0)
    return largest;
  auto enough = [&](double t) {
    return total - offload.most(t, machine.cpus) <= t * machine.accelerators;
  };
  if (enough(low))
    return low;
  for (int i = 0; i < 60; ++i) {
    double middle = 0.5 * (low + high);
    (enough(middle) ? high : low) = middle;
  }
  return low;
}

namespace {

/// Improves a plan over some cuts until none of theirs is better by more than
/// rounding.
class Improving {
public:
  Improving(const PlacementUnits &units, const PlacementMachine &machine,
            const PlacementCuts &cuts, PlacementPlan &best)
      : within(units, machine, cuts), best(best),
        low(placementBound(units, machine)) {}

  void run();

private:
  double below() const { return best.load * (1 - 1e-12); }
  bool tryFor(double load);
  double nextLoad();

  ContiguousWithin within;
  PlacementPlan &best;
  double low;            ///< nothing is below
  bool isProved = false; ///< nothing was found for `low`
  bool wasFound = false; ///< in the last search
  double step = 1.0 / 64;
};

/// Either the best plan becomes better or nothing is below a higher load. What
/// is found can be no better by rounding: whether it fits is decided by
/// differences of sums, while its own load is summed directly.
bool Improving::tryFor(double load) {
  PlacementPlan plan = within.find(load);
  wasFound = !plan.devices.empty() && plan.load < best.load;
  if (wasFound)
    best = std::move(plan);
  else
    low = std::max(low, load), isProved = true;
  return wasFound;
}

/// A search is quick below a load that nothing reaches, and where it finds
/// something; the last one does neither. Near the plan that is known there are
/// few searches more, as each plan that is found is better by something.
double Improving::nextLoad() {
  if (!isProved) {
    const double load = std::max(low, best.load * (1 - step));
    step *= 2;
    return load;
  }
  constexpr double kNear = 1.0 / 512;
  const bool isNear = best.load - low < best.load * kNear;
  return isNear && !wasFound ? below() : 0.5 * (low + best.load);
}

void Improving::run() {
  if (low > below() || !tryFor(below()))
    return;
  while (low < below())
    tryFor(std::min(nextLoad(), below()));
}

} // namespace

PlacementPlan searchContiguous(const PlacementUnits &units,
                               const PlacementMachine &machine, size_t limit) {
  std::vector<double> frontier(static_cast<size_t>(units.size()), 0);
  for (const Transfer &t : units.transfers)
    frontier[t.producer] += t.cost;
  // No placement is above everything together on one device.
  PlacementPlan best;
  best.load = 1;
  for (int u = 0; u < units.size(); ++u)
    best.load += units.latency[u] + units.cpuLatency[u];
  for (const Transfer &t : units.transfers)
    best.load += 2 * t.cost;
  size_t states = 0;
  auto improve = [&](const BitRows &sets) {
    const PlacementCuts cuts = placementCuts(units, sets);
    Improving(units, machine, cuts, best).run();
    return cuts.size();
  };
  for (const auto &order : linearOrders(units.order, frontier))
    states += improve(prefixSets(units, order));
  BitRows sets;
  const double bytes =
      std::accumulate(units.bytes.begin(), units.bytes.end(), 0.0);
  const bool isComplete = allSets(units, bytes > machine.bytes, limit, sets);
  if (isComplete)
    states = improve(sets);
  best.states = states;
  best.exact = isComplete;
  return best;
}

double leastContiguousBytes(const PlacementUnits &units,
                            const PlacementMachine &machine, size_t limit) {
  PlacementUnits weights = units;
  weights.latency = units.bytes;
  weights.transfers.clear();
  for (auto &list : weights.touching)
    list.clear();
  return searchContiguous(weights, {machine.accelerators, 0, 1e300}, limit)
      .load;
}

} // namespace pipec::published
