//===- FreeExact.cpp - small placements of any shape, proved --------------===//
//
// Branch and bound over the devices of the units, those with the most work and
// transfers first. What is placed so far bounds the largest load from below:
// units and consumers only add to it. Empty devices of a kind are alike, so the
// first of them stands for all.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/StableOrder.h"
#include "compiler/plan/published/PlacementSearch.h"
#include "support/Phase.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace pipec::published {

namespace {

constexpr long mostNodes = 400'000;

class Prover {
public:
  Prover(const PlacementUnits &units, const PlacementMachine &machine,
         double incumbent);
  /// False when the tree is too large.
  bool run() {
    place(0);
    return nodes <= mostNodes;
  }
  std::vector<int> best; ///< device of each unit; empty: none below incumbent

private:
  struct State {
    std::vector<double> load, bytes;
    std::vector<uint64_t> consumedOn; ///< [transfer] devices with a consumer
    double sum = 0;                   ///< of the loads
  };
  bool isCpu(int device) const { return device >= machine.accelerators; }
  void place(size_t depth);
  void put(State &state, int unit, int to) const;
  void add(State &state, int device, double amount) const {
    if (isCpu(device))
      return; // CPUs pay no transfers
    state.load[static_cast<size_t>(device)] += amount;
    state.sum += amount;
  }

  const PlacementUnits &units;
  const PlacementMachine machine;
  const int devices;
  double limit;
  std::vector<int> order;
  std::vector<double> workFrom; ///< least work of the units from a depth on
  std::vector<State> states;    ///< by depth
  std::vector<int> device, used;
  long nodes = 0;
};

Prover::Prover(const PlacementUnits &units, const PlacementMachine &machine,
               double incumbent)
    : units(units), machine(machine),
      devices(machine.accelerators + machine.cpus), limit(incumbent),
      order(static_cast<size_t>(units.size())),
      workFrom(static_cast<size_t>(units.size()) + 1, 0),
      states(static_cast<size_t>(units.size()) + 1),
      device(static_cast<size_t>(units.size()), -1),
      used(static_cast<size_t>(devices), 0) {
  std::vector<double> weight(units.latency);
  for (size_t u = 0; u < weight.size(); ++u)
    for (int t : units.touching[u])
      weight[u] += units.transfers[static_cast<size_t>(t)].cost;
  std::iota(order.begin(), order.end(), 0);
  plan::sortBy(order, [&](int u) { return -weight[u]; });
  for (size_t i = order.size(); i-- > 0;) {
    int u = order[i];
    double least = units.latency[u];
    if (machine.cpus > 0)
      least = machine.accelerators > 0 ? std::min(least, units.cpuLatency[u])
                                       : units.cpuLatency[u];
    workFrom[i] = workFrom[i + 1] + least;
  }
  states[0].load.assign(static_cast<size_t>(devices), 0);
  states[0].bytes.assign(static_cast<size_t>(devices), 0);
  states[0].consumedOn.assign(units.transfers.size(), 0);
}

void Prover::put(State &state, int u, int to) const {
  double work = isCpu(to) ? units.cpuLatency[u] : units.latency[u];
  state.load[static_cast<size_t>(to)] += work;
  state.sum += work;
  state.bytes[static_cast<size_t>(to)] += units.bytes[u];
  const uint64_t toBit = uint64_t(1) << to;
  for (int index : units.touching[u]) {
    const Transfer &t = units.transfers[static_cast<size_t>(index)];
    uint64_t &on = state.consumedOn[static_cast<size_t>(index)];
    if (t.producer == u) {
      uint64_t away = on & ~toBit;
      if (away)
        add(state, to, t.cost);
      for (; away; away &= away - 1)
        add(state, std::countr_zero(away), t.cost);
      continue;
    }
    const int home = device[t.producer];
    if (home >= 0 && home != to && !(on & toBit)) {
      add(state, to, t.cost);
      if (!(on & ~(uint64_t(1) << home)))
        add(state, home, t.cost);
    }
    on |= toBit;
  }
}

void Prover::place(size_t depth) {
  const State &here = states[depth];
  if (depth == order.size()) {
    limit = *std::max_element(here.load.begin(), here.load.end());
    best = device;
    return;
  }
  const int u = order[depth];
  bool triedEmpty[2] = {false, false};
  for (int d = 0; d < devices; ++d) {
    if (!isCpu(d) && !units.onAccelerator[u])
      continue;
    if (used[d] == 0 && std::exchange(triedEmpty[isCpu(d)], true))
      continue;
    if (++nodes > mostNodes)
      return;
    State &next = states[depth + 1];
    next = here;
    put(next, u, d);
    const double most = *std::max_element(next.load.begin(), next.load.end());
    const double even = (next.sum + workFrom[depth + 1]) / devices;
    if (std::max(most, even) >= limit * (1 - 1e-12) ||
        (!isCpu(d) && next.bytes[d] > machine.bytes))
      continue;
    device[u] = d;
    ++used[d];
    place(depth + 1);
    --used[d];
    device[u] = -1;
  }
}

} // namespace

void proveFree(const PlacementUnits &units, const PlacementMachine &machine,
               PlacementPlan &plan) {
  constexpr int mostUnits = 32;
  if (units.size() > mostUnits || machine.accelerators + machine.cpus > 64)
    return;
  const Phase proving("proving");
  Prover prover(units, machine, plan.load);
  if (!prover.run())
    return;
  if (!prover.best.empty()) {
    PlacementPlan better = placementOf(units, machine, prover.best);
    better.states = plan.states;
    plan = std::move(better);
  }
  plan.exact = true;
}

PlacementPlan packBytes(const PlacementUnits &units,
                        const PlacementMachine &machine) {
  // Largest first onto the emptiest; then the proof, with bytes for loads.
  std::vector<int> order(static_cast<size_t>(units.size()));
  std::iota(order.begin(), order.end(), 0);
  plan::sortBy(order, [&](int u) { return -units.bytes[u]; });
  std::vector<int> deviceOf(order.size(), 0);
  std::vector<double> bytes(static_cast<size_t>(machine.accelerators), 0);
  for (int u : order) {
    deviceOf[u] = static_cast<int>(
        std::min_element(bytes.begin(), bytes.end()) - bytes.begin());
    bytes[static_cast<size_t>(deviceOf[u])] += units.bytes[u];
  }
  PlacementUnits weights = units;
  weights.latency = units.bytes;
  weights.transfers.clear();
  for (auto &list : weights.touching)
    list.clear();
  const PlacementMachine bins{machine.accelerators, 0, 1e300};
  PlacementPlan plan = placementOf(weights, bins, deviceOf);
  proveFree(weights, bins, plan);
  return plan;
}

} // namespace pipec::published
