//===- FreeSearch.cpp - placements that need not be contiguous ------------===//
//
// Simulated annealing on the units' devices. The energy is a high power mean of
// the loads, which sees the second-largest load too and so leads the largest
// one down; the best placement by largest load is kept. A fixed generator and a
// fixed number of moves make it repeatable.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/published/PlacementSearch.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipec::published {

namespace {

class Annealer {
public:
  Annealer(const PlacementUnits &units, const PlacementMachine &machine,
           uint64_t seed);

  void place(const std::vector<int> &deviceOf);
  void run(long moves, double hot, double cold);

  std::vector<int> best; ///< device of each unit
  double bestLoad = std::numeric_limits<double>::infinity();

private:
  bool isCpu(int device) const { return device >= machine.accelerators; }
  bool allowed(int unit, int device) const {
    return isCpu(device) ||
           (units.onAccelerator[unit] &&
            bytes[device] + units.bytes[unit] <= machine.bytes);
  }
  double energy() const;
  void shift(int unit, int to);
  /// Adds (or takes away) what transfer t costs its devices as things stand.
  void charge(int t, double sign);
  int propose(int unit);
  void keepBest();
  uint64_t random() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
  int below(int n) {
    return static_cast<int>((random() >> 20) % static_cast<uint64_t>(n));
  }
  double unit() { return static_cast<double>(random() >> 11) * 0x1p-53; }

  const PlacementUnits &units;
  const PlacementMachine machine;
  const int devices;
  uint64_t state;
  std::vector<int> device; ///< of each unit
  std::vector<double> load, bytes;
  std::vector<int> consumersOn; ///< [transfer][device]
  double scale = 1;
};

Annealer::Annealer(const PlacementUnits &units, const PlacementMachine &machine,
                   uint64_t seed)
    : units(units), machine(machine),
      devices(machine.accelerators + machine.cpus),
      state(seed * 0x9e3779b97f4a7c15ull + 0x7f4a7c15) {}

void Annealer::charge(int t, double sign) {
  const Transfer &transfer = units.transfers[static_cast<size_t>(t)];
  int home = device[transfer.producer];
  const int *on = &consumersOn[static_cast<size_t>(t * devices)];
  bool leaves = false;
  for (int d = 0; d < devices; ++d) {
    if (d == home || on[d] == 0)
      continue;
    leaves = true;
    if (!isCpu(d))
      load[d] += sign * transfer.cost;
  }
  if (leaves && !isCpu(home))
    load[home] += sign * transfer.cost;
}

void Annealer::place(const std::vector<int> &deviceOf) {
  device = deviceOf;
  load.assign(static_cast<size_t>(devices), 0);
  bytes.assign(static_cast<size_t>(devices), 0);
  consumersOn.assign(units.transfers.size() * static_cast<size_t>(devices), 0);
  for (int u = 0; u < units.size(); ++u) {
    load[device[u]] +=
        isCpu(device[u]) ? units.cpuLatency[u] : units.latency[u];
    bytes[device[u]] += units.bytes[u];
  }
  for (size_t t = 0; t < units.transfers.size(); ++t) {
    for (int c : units.transfers[t].consumers)
      ++consumersOn[t * static_cast<size_t>(devices) +
                    static_cast<size_t>(device[c])];
    charge(static_cast<int>(t), +1);
  }
  keepBest();
}

void Annealer::keepBest() {
  double most = *std::max_element(load.begin(), load.end());
  if (most < bestLoad) {
    bestLoad = most;
    best = device;
  }
}

double Annealer::energy() const {
  double sum = 0;
  for (double l : load) {
    double x = l * scale;
    double x2 = x * x, x4 = x2 * x2, x8 = x4 * x4;
    sum += x8 * x4;
  }
  return sum;
}

void Annealer::shift(int u, int to) {
  int from = device[u];
  for (int t : units.touching[u])
    charge(t, -1);
  load[from] -= isCpu(from) ? units.cpuLatency[u] : units.latency[u];
  load[to] += isCpu(to) ? units.cpuLatency[u] : units.latency[u];
  bytes[from] -= units.bytes[u];
  bytes[to] += units.bytes[u];
  for (int t : units.touching[u])
    if (units.transfers[static_cast<size_t>(t)].producer != u) {
      --consumersOn[static_cast<size_t>(t * devices + from)];
      ++consumersOn[static_cast<size_t>(t * devices + to)];
    }
  device[u] = to;
  for (int t : units.touching[u])
    charge(t, +1);
}

/// Another device for a unit: mostly one that a neighbour lives on.
int Annealer::propose(int u) {
  if (!units.touching[u].empty() && below(4) != 0) {
    const Transfer &t = units.transfers[static_cast<size_t>(
        units.touching[u][static_cast<size_t>(
            below(static_cast<int>(units.touching[u].size())))])];
    int other = t.producer == u ? t.consumers[static_cast<size_t>(below(
                                      static_cast<int>(t.consumers.size())))]
                                : t.producer;
    if (device[other] != device[u])
      return device[other];
  }
  return below(devices);
}

void Annealer::run(long moves, double hot, double cold) {
  if (devices < 2 || units.size() < 1)
    return;
  scale = 1 / bestLoad;
  double now = energy();
  double cooling =
      std::pow(cold / hot, 1.0 / static_cast<double>(std::max(1L, moves)));
  double temperature = hot;
  std::vector<double> before;
  for (long i = 0; i < moves; ++i, temperature *= cooling) {
    int u = below(units.size());
    int to = propose(u), from = device[u];
    if (to == from)
      continue;
    // Now and then two units change places.
    int other = -1;
    if (below(4) == 0) {
      other = below(units.size());
      if (other == u || device[other] != to)
        other = -1;
    }
    before = load;
    if (other >= 0 && (isCpu(from) || units.onAccelerator[other]))
      shift(other, from);
    else
      other = -1;
    if (!allowed(u, to)) {
      if (other >= 0)
        shift(other, to);
      load = before;
      continue;
    }
    shift(u, to);
    bool fits = isCpu(from) || bytes[from] <= machine.bytes;
    double next = energy();
    if (fits && (next <= now ||
                 unit() < std::exp((now - next) / (temperature * now)))) {
      now = next;
      keepBest();
      continue;
    }
    shift(u, from);
    if (other >= 0)
      shift(other, to);
    load = before; // sums taken back exactly
  }
}

} // namespace

PlacementPlan searchFree(const PlacementUnits &units,
                         const PlacementMachine &machine,
                         const PlacementPlan &start, long effort) {
  std::vector<int> first(static_cast<size_t>(units.size()), 0);
  int accelerator = 0, cpu = machine.accelerators;
  for (const auto &d : start.devices) {
    int number = d.cpu ? cpu++ : accelerator++;
    for (int u : d.units)
      first[u] = number;
  }
  std::vector<int> best;
  double bestLoad = std::numeric_limits<double>::infinity();
  constexpr int rounds = 4;
  for (int round = 0; round < rounds; ++round) {
    Annealer annealer(units, machine, static_cast<uint64_t>(round) + 1);
    annealer.place(round < 2 || best.empty() ? first : best);
    annealer.run(effort / rounds,
                 round == 1   ? 1.0
                 : round == 3 ? 0.02
                              : 0.2,
                 1e-5);
    if (annealer.bestLoad < bestLoad) {
      bestLoad = annealer.bestLoad;
      best = annealer.best;
    }
  }
  PlacementPlan plan;
  for (int d = 0; d < machine.accelerators + machine.cpus; ++d) {
    PlacementPlan::Device out;
    out.cpu = d >= machine.accelerators;
    std::vector<char> member(static_cast<size_t>(units.size()), 0);
    for (int u = 0; u < units.size(); ++u)
      if (best[u] == d)
        out.units.push_back(u), member[u] = 1;
    if (out.units.empty())
      continue;
    out.load = placementLoad(units, member, out.cpu);
    plan.load = std::max(plan.load, out.load);
    plan.devices.push_back(std::move(out));
  }
  plan.states = start.states;
  return plan;
}

} // namespace pipec::published
