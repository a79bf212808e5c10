#include "compiler/plan/published/PlacementSearch.h"
#include "support/Phase.h"

#include <algorithm>
#include <bit>
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

namespace {

/// The most accelerator time that CPUs can take over in `seconds` each, as a
/// fractional knapsack.
class Offload {
public:
  Offload(const PlacementUnits &units, int cpus) : cpus(cpus) {
    std::vector<std::pair<double, double>> items; // cpu, accelerator
    for (int u = 0; u < units.size(); ++u)
      if (units.latency[u] > 0)
        items.push_back({units.cpuLatency[u], units.latency[u]});
    std::sort(items.begin(), items.end(), [](const auto &a, const auto &b) {
      return a.second * b.first > b.second * a.first;
    });
    double cpu = 0, work = 0;
    for (auto [c, w] : items) {
      points.push_back({cpu += c, work += w});
    }
  }
  double most(double seconds, int count) const {
    double budget = seconds * count, before = 0, done = 0;
    for (auto [cpu, work] : points) {
      if (cpu > budget) {
        double share = cpu > before ? (budget - before) / (cpu - before) : 0;
        return done + share * (work - done);
      }
      before = cpu;
      done = work;
    }
    return done;
  }
  const int cpus;

private:
  std::vector<std::pair<double, double>> points;
};

} // namespace

double placementBound(const PlacementUnits &units,
                      const PlacementMachine &machine) {
  Offload offload(units, machine.cpus);
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

/// The cuts a search may use: closed sets of units with sums over them.
struct Cuts {
  BitRows sets;
  std::vector<double> work, cpu, bytes,
      crossing; ///< crossing: cost of cut transfers
  std::vector<int> unsupported;
  std::vector<std::vector<int>> cutTransfers;
  /// Units of each cut that no other of its units follows: a closed set
  /// contains the cut exactly when it contains these.
  std::vector<std::vector<int>> maximal;
  std::vector<std::vector<uint64_t>> containing; ///< [unit] bits over cuts

  size_t size() const { return work.size(); }
};

class Contiguous {
public:
  Contiguous(const PlacementUnits &units, const PlacementMachine &machine)
      : units(units), machine(machine), offload(units, machine.cpus) {
    words = BitRows(static_cast<size_t>(std::max(1, units.size()))).words;
    for (const Transfer &t : units.transfers) {
      std::vector<uint64_t> mask(words, 0);
      for (int c : t.consumers)
        BitRows::set(mask.data(), c);
      consumers.insert(consumers.end(), mask.begin(), mask.end());
    }
  }

  /// Improves on `incumbent` over these cuts; no devices when it cannot.
  PlacementPlan solve(const Cuts &cuts, double incumbent);
  Cuts cutsOf(BitRows sets) const;

private:
  double transferLoad(const Cuts &cuts, size_t before, size_t after,
                      double most) const;
  PlacementPlan rebuild(const Cuts &cuts, size_t end, int accelerators,
                        int cpus) const;
  double prepare(const Cuts &cuts, size_t k);
  void push(const Cuts &cuts, size_t k);
  double useful(size_t k, size_t j, bool cpu) const;
  void tryStage(size_t k, size_t j, double load, bool cpu);
  bool hopeless(double workLeft, int accelerators, int cpus) const {
    return workLeft >
           limit * accelerators + offloadFor[static_cast<size_t>(cpus)] + slack;
  }

  struct From {
    uint32_t cut = 0;
    bool cpu = false;
  };
  size_t shape() const {
    return static_cast<size_t>(machine.accelerators + 1) *
           static_cast<size_t>(machine.cpus + 1);
  }
  size_t slot(int accelerators, int cpus) const {
    return static_cast<size_t>(accelerators) *
               static_cast<size_t>(machine.cpus + 1) +
           static_cast<size_t>(cpus);
  }

  const PlacementUnits &units;
  const PlacementMachine machine;
  Offload offload;
  size_t words;
  std::vector<uint64_t> consumers; ///< masks, `words` each
  double limit = inf, slack = 0, mostWork = 0;
  std::vector<double>
      offloadFor;            ///< accelerator work n CPUs can take within limit
  std::vector<double> value; ///< [cut][slot]
  std::vector<From> origin;
  std::vector<int>
      lowest; ///< [cpus used]: fewest accelerators of a prefix of k
  std::vector<int> highest; ///< [cut][cpus used]: most that leave enough work
  std::vector<uint64_t> above;
};

Cuts Contiguous::cutsOf(BitRows sets) const {
  const Phase listing("listing cuts");
  size_t n = sets.rows();
  struct Sums {
    double work = 0, cpu = 0, bytes = 0;
    int unsupported = 0, size = 0;
  };
  std::vector<Sums> sums(n);
  for (size_t s = 0; s < n; ++s)
    for (int u = 0; u < units.size(); ++u)
      if (BitRows::test(sets.row(s), u)) {
        sums[s].work += units.latency[u];
        sums[s].cpu += units.cpuLatency[u];
        sums[s].bytes += units.bytes[u];
        sums[s].unsupported += !units.onAccelerator[u];
        ++sums[s].size;
      }
  // By work, then size: a subset comes before its supersets.
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (sums[a].work != sums[b].work)
      return sums[a].work < sums[b].work;
    return sums[a].size != sums[b].size ? sums[a].size < sums[b].size : a < b;
  });
  Cuts cuts;
  cuts.sets = BitRows(static_cast<size_t>(std::max(1, units.size())));
  for (size_t s : order) {
    const uint64_t *row = sets.row(s);
    cuts.sets.push(row);
    cuts.work.push_back(sums[s].work);
    cuts.cpu.push_back(sums[s].cpu);
    cuts.bytes.push_back(sums[s].bytes);
    cuts.unsupported.push_back(sums[s].unsupported);
    std::vector<int> cut;
    double crossing = 0;
    for (size_t t = 0; t < units.transfers.size(); ++t) {
      const Transfer &transfer = units.transfers[t];
      bool producer = BitRows::test(row, transfer.producer);
      bool differs =
          std::any_of(transfer.consumers.begin(), transfer.consumers.end(),
                      [&](int c) { return BitRows::test(row, c) != producer; });
      if (differs)
        cut.push_back(static_cast<int>(t)), crossing += transfer.cost;
    }
    cuts.crossing.push_back(crossing);
    cuts.cutTransfers.push_back(std::move(cut));
    std::vector<int> maximal;
    for (int u = 0; u < units.size(); ++u)
      if (BitRows::test(row, u) &&
          std::none_of(units.order.out[u].begin(), units.order.out[u].end(),
                       [&](int v) { return BitRows::test(row, v); }))
        maximal.push_back(u);
    cuts.maximal.push_back(std::move(maximal));
  }
  cuts.containing.assign(static_cast<size_t>(units.size()),
                         std::vector<uint64_t>((n + 63) / 64, 0));
  for (size_t s = 0; s < n; ++s)
    for (int u = 0; u < units.size(); ++u)
      if (BitRows::test(cuts.sets.row(s), u))
        BitRows::set(cuts.containing[u].data(), static_cast<int>(s));
  return cuts;
}

/// Outputs that enter or leave the stage between two cuts, each once a
/// direction; gives up (inf) beyond `most`. Only transfers cut at one of its
/// ends can.
double Contiguous::transferLoad(const Cuts &cuts, size_t before, size_t after,
                                double most) const {
  const uint64_t *low = cuts.sets.row(before), *high = cuts.sets.row(after);
  double load = 0;
  auto add = [&](int t) {
    const Transfer &transfer = units.transfers[static_cast<size_t>(t)];
    const uint64_t *mask = &consumers[static_cast<size_t>(t) * words];
    bool producer = BitRows::test(high, transfer.producer) &&
                    !BitRows::test(low, transfer.producer);
    bool inside = false, outside = false;
    for (size_t w = 0; w < words; ++w) {
      uint64_t stage = high[w] & ~low[w];
      inside |= (mask[w] & stage) != 0;
      outside |= (mask[w] & ~stage) != 0;
    }
    if (producer ? outside : inside)
      load += transfer.cost;
  };
  const auto &atEnd = cuts.cutTransfers[after],
             &atStart = cuts.cutTransfers[before];
  for (int t : atEnd) {
    add(t);
    if (load > most)
      return inf;
  }
  size_t e = 0;
  for (int t : atStart) {
    while (e < atEnd.size() && atEnd[e] < t)
      ++e;
    if (e < atEnd.size() && atEnd[e] == t)
      continue;
    add(t);
    if (load > most)
      return inf;
  }
  return load;
}

/// The largest load at which a stage from k to j improves on anything known.
double Contiguous::useful(size_t k, size_t j, bool cpu) const {
  const double *from = &value[k * shape()];
  const double *to = &value[j * shape()];
  double most = 0;
  for (int c = 0; c + cpu <= machine.cpus; ++c) {
    int used = c + cpu;
    int high = highest[j * static_cast<size_t>(machine.cpus + 1) +
                       static_cast<size_t>(used)];
    for (int a = lowest[c]; a + !cpu <= high; ++a) {
      double now = to[slot(a + !cpu, used)];
      if (from[slot(a, c)] < now)
        most = std::max(most, now);
    }
  }
  return most;
}

void Contiguous::tryStage(size_t k, size_t j, double load, bool cpu) {
  const double *from = &value[k * shape()];
  double *to = &value[j * shape()];
  From *toFrom = &origin[j * shape()];
  for (int c = 0; c + cpu <= machine.cpus; ++c)
    for (int a = lowest[c]; a + !cpu <= machine.accelerators; ++a) {
      double t = std::max(from[slot(a, c)], load);
      size_t at = slot(a + !cpu, c + cpu);
      if (t < to[at]) {
        to[at] = t;
        toFrom[at] = {static_cast<uint32_t>(k), cpu};
      }
    }
}

/// Drops prefixes of k that leave too much for too few, notes the rest in
/// `lowest`; returns the least work the next stage must reach, inf for none.
double Contiguous::prepare(const Cuts &cuts, size_t k) {
  double total = cuts.work.back(), reach = inf;
  lowest.assign(static_cast<size_t>(machine.cpus + 1),
                machine.accelerators + 1);
  for (int c = 0; c <= machine.cpus; ++c)
    for (int a = machine.accelerators; a >= 0; --a) {
      double &entry = value[k * shape() + slot(a, c)];
      if (entry >= limit)
        continue;
      int accelerators = machine.accelerators - a, cpus = machine.cpus - c;
      if (hopeless(total - cuts.work[k], accelerators, cpus)) {
        entry = inf;
        continue;
      }
      lowest[c] = a;
      if (accelerators > 0)
        reach = std::min(reach, total - limit * (accelerators - 1) -
                                    offloadFor[static_cast<size_t>(cpus)]);
      if (cpus > 0)
        reach = std::min(reach, total - limit * accelerators -
                                    offloadFor[static_cast<size_t>(cpus - 1)]);
    }
  return reach;
}

/// Extends every prefix that ends at cut k by one more device.
void Contiguous::push(const Cuts &cuts, size_t k) {
  double reach = prepare(cuts, k);
  if (reach == inf)
    return;
  const double *work = cuts.work.data();
  size_t n = cuts.size();
  size_t begin = static_cast<size_t>(
      std::lower_bound(work + k + 1, work + n, reach - slack) - work);
  size_t end = static_cast<size_t>(
      std::upper_bound(work + begin, work + n, work[k] + mostWork + slack) -
      work);
  size_t firstWord = begin / 64, lastWord = (end + 63) / 64;
  above.assign(lastWord, ~uint64_t(0));
  for (int u : cuts.maximal[k]) {
    const uint64_t *bits = cuts.containing[static_cast<size_t>(u)].data();
    for (size_t w = firstWord; w < lastWord; ++w)
      above[w] &= bits[w];
  }
  for (size_t w = firstWord; w < lastWord; ++w)
    for (uint64_t rest = above[w]; rest; rest &= rest - 1) {
      size_t j = w * 64 + static_cast<size_t>(std::countr_zero(rest));
      if (j < begin)
        continue;
      if (j >= end)
        break;
      double compute = work[j] - work[k];
      // The cut costs at both ends bound what the stage moves from below.
      double least =
          compute + std::abs(cuts.crossing[j] - cuts.crossing[k]) - slack;
      if (least < limit && cuts.unsupported[j] == cuts.unsupported[k] &&
          cuts.bytes[j] - cuts.bytes[k] <= machine.bytes) {
        double most = useful(k, j, false);
        if (least < most) {
          double load = compute + transferLoad(cuts, k, j, most - compute);
          if (load < most)
            tryStage(k, j, load, false);
        }
      }
      double cpu = cuts.cpu[j] - cuts.cpu[k];
      if (machine.cpus > 0 && cpu < limit)
        tryStage(k, j, cpu, true);
    }
}

PlacementPlan Contiguous::solve(const Cuts &cuts, double incumbent) {
  limit = incumbent;
  slack = 1e-9 * (cuts.work.back() + limit);
  offloadFor.clear();
  for (int c = 0; c <= machine.cpus; ++c)
    offloadFor.push_back(offload.most(limit, c));
  mostWork = std::max(limit, machine.cpus > 0 ? offloadFor[1] : 0.0);
  size_t n = cuts.size();
  highest.clear();
  for (size_t j = 0; j < n; ++j)
    for (int c = 0; c <= machine.cpus; ++c) {
      int a = machine.accelerators;
      while (a >= 0 && hopeless(cuts.work.back() - cuts.work[j],
                                machine.accelerators - a, machine.cpus - c))
        --a;
      highest.push_back(a);
    }
  value.assign(n * shape(), limit);
  origin.assign(n * shape(), {});
  std::fill(value.begin(), value.begin() + static_cast<long>(shape()), 0.0);
  Phase searching("searching cuts", static_cast<int64_t>(n));
  for (size_t k = 0; k + 1 < n; ++k) {
    searching.next();
    push(cuts, k);
  }
  PlacementPlan plan;
  double best =
      value[(n - 1) * shape() + slot(machine.accelerators, machine.cpus)];
  if (best >= limit)
    return plan;
  return rebuild(cuts, n - 1, machine.accelerators, machine.cpus);
}

PlacementPlan Contiguous::rebuild(const Cuts &cuts, size_t end,
                                  int accelerators, int cpus) const {
  PlacementPlan plan;
  while (end != 0) {
    From from = origin[end * shape() + slot(accelerators, cpus)];
    PlacementPlan::Device device;
    device.cpu = from.cpu;
    std::vector<char> member(static_cast<size_t>(units.size()), 0);
    for (int u = 0; u < units.size(); ++u)
      if (BitRows::test(cuts.sets.row(end), u) &&
          !BitRows::test(cuts.sets.row(from.cut), u)) {
        device.units.push_back(u);
        member[u] = 1;
      }
    device.load = placementLoad(units, member, from.cpu);
    plan.load = std::max(plan.load, device.load);
    plan.devices.insert(plan.devices.begin(), std::move(device));
    (from.cpu ? cpus : accelerators) -= 1;
    end = from.cut;
  }
  return plan;
}

/// Sets that the prefixes of linear orders form, the empty one first.
BitRows prefixes(const PlacementUnits &units, const std::vector<int> &order) {
  BitRows sets(static_cast<size_t>(std::max(1, units.size())));
  std::vector<uint64_t> row(sets.words, 0);
  sets.push(row.data());
  for (int u : order) {
    BitRows::set(row.data(), u);
    sets.push(row.data());
  }
  return sets;
}

/// All closed sets that have a unit which costs nothing wherever it is, nor
/// anything after it does, exactly when they have all before it: of any
/// placement it may move to the first device that the order leaves to it. Such
/// units, outputs that nobody reads, would multiply the sets.
bool placementSets(const PlacementUnits &units, bool memoryBinds, size_t limit,
                   BitRows &sets) {
  const auto n = static_cast<size_t>(units.size());
  std::vector<char> isIdle(n, 0);
  std::vector<int> number(n, -1);
  int kept = 0;
  for (size_t v = n; v-- > 0;) {
    const auto &after = units.order.out[v];
    isIdle[v] =
        units.latency[v] == 0 && units.cpuLatency[v] == 0 &&
        units.touching[v].empty() && units.onAccelerator[v] &&
        !(memoryBinds && units.bytes[v] != 0) && !units.order.in[v].empty() &&
        std::all_of(after.begin(), after.end(),
                    [&](int w) { return isIdle[static_cast<size_t>(w)]; });
  }
  for (size_t v = 0; v < n; ++v)
    if (!isIdle[v])
      number[v] = kept++;
  Dag rest(kept);
  for (size_t v = 0; v < n; ++v)
    for (int w : units.order.out[v])
      if (!isIdle[static_cast<size_t>(w)])
        rest.edge(number[v], number[static_cast<size_t>(w)]);
  rest.finish();
  BitRows some;
  if (!closedSets(rest, limit, some))
    return false;
  sets = BitRows(std::max<size_t>(1, n));
  for (size_t s = 0; s < some.rows(); ++s) {
    std::vector<uint64_t> row(sets.words, 0);
    for (size_t v = 0; v < n; ++v) {
      const auto &before = units.order.in[v];
      const bool isIn =
          isIdle[v]
              ? std::all_of(before.begin(), before.end(),
                            [&](int u) { return BitRows::test(row.data(), u); })
              : BitRows::test(some.row(s), number[v]);
      if (isIn)
        BitRows::set(row.data(), static_cast<int>(v));
    }
    sets.push(row.data());
  }
  return true;
}

} // namespace

PlacementPlan searchContiguous(const PlacementUnits &units,
                               const PlacementMachine &machine, size_t limit) {
  Contiguous search(units, machine);
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
  auto improve = [&](const Cuts &cuts) {
    PlacementPlan plan = search.solve(cuts, best.load);
    if (!plan.devices.empty())
      best = std::move(plan);
  };
  size_t states = 0;
  for (const auto &order : linearOrders(units.order, frontier)) {
    Cuts cuts = search.cutsOf(prefixes(units, order));
    states += cuts.size();
    improve(cuts);
  }
  BitRows sets;
  const double bytes =
      std::accumulate(units.bytes.begin(), units.bytes.end(), 0.0);
  const bool complete =
      placementSets(units, bytes > machine.bytes, limit, sets);
  if (complete) {
    Cuts cuts = search.cutsOf(std::move(sets));
    states = cuts.size();
    improve(cuts);
  }
  best.states = states;
  best.exact = complete;
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
