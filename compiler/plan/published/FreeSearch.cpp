//===- FreeSearch.cpp - placements that need not be contiguous ------------===//
//
// Simulated annealing on the units' devices. The energy is a high power mean of
// the loads, which sees the second-largest load too and so leads the largest
// one down; the best placement by largest load is kept. A fixed generator and a
// fixed number of moves make it repeatable.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/published/PlacementSearch.h"
#include "support/Phase.h"

#include <algorithm>
#include <bit>
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
  bool roomFor(int device) const {
    return isCpu(device) || bytes[device] <= machine.bytes;
  }
  bool runsOn(int unit, int device) const {
    return isCpu(device) || units.onAccelerator[unit];
  }
  void tally();
  void add(int device, double amount);
  void moveProducer(const Transfer &transfer, uint64_t on, int from, int to);
  void moveConsumer(int t, int from, int to);
  void shift(int unit, int to);
  void takeRun(int unit, int to);
  int propose(int unit);
  void keepBest();
  static double power12(double x) {
    double x2 = x * x, x4 = x2 * x2;
    return x4 * x4 * x4;
  }
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
  std::vector<int> consumersOn;     ///< [transfer][device]
  std::vector<uint64_t> consumedOn; ///< [transfer] devices with a consumer
  double scale = 1, energy = 0;
  std::vector<std::pair<int, int>> moved; ///< units of a move, where they were
};

Annealer::Annealer(const PlacementUnits &units, const PlacementMachine &machine,
                   uint64_t seed)
    : units(units), machine(machine),
      devices(machine.accelerators + machine.cpus),
      state(seed * 0x9e3779b97f4a7c15ull + 0x7f4a7c15) {}

void Annealer::place(const std::vector<int> &deviceOf) {
  device = deviceOf;
  size_t width = static_cast<size_t>(devices);
  consumersOn.assign(units.transfers.size() * width, 0);
  consumedOn.assign(units.transfers.size(), 0);
  for (size_t t = 0; t < units.transfers.size(); ++t)
    for (int c : units.transfers[t].consumers) {
      ++consumersOn[t * width + static_cast<size_t>(device[c])];
      consumedOn[t] |= uint64_t(1) << device[c];
    }
  tally();
  keepBest();
}

/// Loads and energy from scratch: sums of millions of moves drift.
void Annealer::tally() {
  load.assign(static_cast<size_t>(devices), 0);
  bytes.assign(static_cast<size_t>(devices), 0);
  for (int u = 0; u < units.size(); ++u) {
    load[device[u]] +=
        isCpu(device[u]) ? units.cpuLatency[u] : units.latency[u];
    bytes[device[u]] += units.bytes[u];
  }
  for (size_t t = 0; t < units.transfers.size(); ++t) {
    const Transfer &transfer = units.transfers[t];
    int home = device[transfer.producer];
    uint64_t away = consumedOn[t] & ~(uint64_t(1) << home);
    if (away && !isCpu(home))
      load[home] += transfer.cost;
    for (; away; away &= away - 1)
      if (int d = std::countr_zero(away); !isCpu(d))
        load[d] += transfer.cost;
  }
  energy = 0;
  for (double l : load)
    energy += power12(l * scale);
}

void Annealer::keepBest() {
  double most = *std::max_element(load.begin(), load.end());
  if (most < bestLoad) {
    bestLoad = most;
    best = device;
  }
}

void Annealer::add(int d, double amount) {
  energy -= power12(load[d] * scale);
  load[d] += amount;
  energy += power12(load[d] * scale);
}

/// What a transfer costs changes in at most three places when one end moves.
void Annealer::moveProducer(const Transfer &transfer, uint64_t on, int from,
                            int to) {
  uint64_t fromBit = uint64_t(1) << from, toBit = uint64_t(1) << to;
  double out = on & ~fromBit ? -transfer.cost : 0; // no longer leaves `from`
  double in = on & ~toBit ? transfer.cost : 0;
  if (on & fromBit)
    out += transfer.cost; // consumers left behind receive it now
  if (on & toBit)
    in -= transfer.cost;
  if (!isCpu(from) && out != 0)
    add(from, out);
  if (!isCpu(to) && in != 0)
    add(to, in);
}

void Annealer::moveConsumer(int t, int from, int to) {
  const Transfer &transfer = units.transfers[static_cast<size_t>(t)];
  int *on = &consumersOn[static_cast<size_t>(t) * static_cast<size_t>(devices)];
  uint64_t &mask = consumedOn[static_cast<size_t>(t)];
  int home = device[transfer.producer];
  uint64_t homeBit = uint64_t(1) << home;
  bool left = mask & ~homeBit;
  if (--on[from] == 0) {
    mask &= ~(uint64_t(1) << from);
    if (from != home && !isCpu(from))
      add(from, -transfer.cost);
  }
  if (on[to]++ == 0) {
    mask |= uint64_t(1) << to;
    if (to != home && !isCpu(to))
      add(to, transfer.cost);
  }
  bool leaves = mask & ~homeBit;
  if (left != leaves && !isCpu(home))
    add(home, leaves ? transfer.cost : -transfer.cost);
}

void Annealer::shift(int u, int to) {
  int from = device[u];
  add(from, isCpu(from) ? -units.cpuLatency[u] : -units.latency[u]);
  add(to, isCpu(to) ? units.cpuLatency[u] : units.latency[u]);
  bytes[from] -= units.bytes[u];
  bytes[to] += units.bytes[u];
  for (int t : units.touching[u]) {
    const Transfer &transfer = units.transfers[static_cast<size_t>(t)];
    if (transfer.producer == u)
      moveProducer(transfer, consumedOn[static_cast<size_t>(t)], from, to);
    else
      moveConsumer(t, from, to);
  }
  device[u] = to;
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

/// Moves up to a few consumers, one after the other, that share u's device.
void Annealer::takeRun(int u, int to) {
  int from = device[u], at = u;
  for (int left = 1 + below(6); left > 0; --left) {
    int next = -1;
    for (int t : units.touching[at]) {
      const Transfer &transfer = units.transfers[static_cast<size_t>(t)];
      if (transfer.producer != at)
        continue;
      for (int c : transfer.consumers)
        if (c != u && device[c] == from && runsOn(c, to))
          next = c;
    }
    if (next < 0)
      return;
    moved.push_back({next, from});
    shift(next, to);
    at = next;
  }
}

void Annealer::run(long moves, double hot, double cold) {
  if (devices < 2 || units.size() < 1 || !(bestLoad > 0))
    return;
  scale = 1 / bestLoad;
  tally();
  double cooling =
      std::pow(cold / hot, 1.0 / static_cast<double>(std::max(1L, moves)));
  double temperature = hot;
  for (long i = 0; i < moves; ++i, temperature *= cooling) {
    if ((i & 0xffff) == 0xffff)
      tally();
    int u = below(units.size());
    int to = propose(u), from = device[u];
    if (to == from || !runsOn(u, to))
      continue;
    double now = energy;
    moved.clear();
    switch (below(3)) {
    case 0: // two units change places
      if (int other = below(units.size());
          other != u && device[other] == to && runsOn(other, from)) {
        moved.push_back({other, to});
        shift(other, from);
      }
      break;
    case 1: // a run of consumers moves along
      takeRun(u, to);
      break;
    default:
      break;
    }
    moved.push_back({u, from});
    shift(u, to);
    bool fits = roomFor(to) && roomFor(from);
    if (fits && (energy <= now ||
                 unit() < std::exp((now - energy) / (temperature * now)))) {
      keepBest();
      continue;
    }
    while (!moved.empty()) {
      shift(moved.back().first, moved.back().second);
      moved.pop_back();
    }
    energy = now;
  }
}

} // namespace

PlacementPlan placementOf(const PlacementUnits &units,
                          const PlacementMachine &machine,
                          const std::vector<int> &deviceOf) {
  PlacementPlan plan;
  for (int d = 0; d < machine.accelerators + machine.cpus; ++d) {
    PlacementPlan::Device out;
    out.cpu = d >= machine.accelerators;
    std::vector<char> member(static_cast<size_t>(units.size()), 0);
    for (int u = 0; u < units.size(); ++u)
      if (deviceOf[u] == d)
        out.units.push_back(u), member[u] = 1;
    if (out.units.empty())
      continue;
    out.load = placementLoad(units, member, out.cpu);
    plan.load = std::max(plan.load, out.load);
    plan.devices.push_back(std::move(out));
  }
  return plan;
}

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
  // Hot starts find other structures; cool ones polish the given one. The last
  // polishes the best of all.
  struct Round {
    double share, hot;
    bool fromBest;
  };
  constexpr Round rounds[] = {{0.3, 1.0, false},
                              {0.2, 0.1, false},
                              {0.2, 0.01, false},
                              {0.3, 0.01, true}};
  std::vector<int> best = first;
  double bestLoad = std::numeric_limits<double>::infinity();
  uint64_t seed = 1;
  Phase searching("moving nodes, round", std::ssize(rounds));
  for (const Round &round : rounds) {
    searching.next();
    Annealer annealer(units, machine, seed++);
    annealer.place(round.fromBest ? best : first);
    annealer.run(static_cast<long>(round.share * static_cast<double>(effort)),
                 round.hot, 1e-5);
    if (annealer.bestLoad < bestLoad) {
      bestLoad = annealer.bestLoad;
      best = annealer.best;
    }
  }
  PlacementPlan plan = placementOf(units, machine, best);
  plan.states = start.states;
  return plan;
}

} // namespace pipec::published
