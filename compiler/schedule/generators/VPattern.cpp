//===- VPattern.cpp - repeated building blocks on a V ---------------------===//
//
// Qi et al., NeurIPS 2024 (controllable memory): device i holds stages i and
// 2P-1-i. A block gives each of the four passes of a microbatch a slot; six
// slots later comes the next microbatch. The smaller the steps from device to
// device, the shorter activations live: V-Min steps by one slot (a third of
// 1F1B's memory), V-Half by two down and one up (half of it). The shift by
// `delta` keeps passes of different microbatches apart.
//
// 1F1B-V keeps backwards whole: two passes of one slot and two of two slots
// fill the six. Of all ways to lay them out, device by device, the one with the
// fewest steps in all is taken, which is the one of the least memory.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/generators/Published.h"

#include "compiler/schedule/generators/Build.h"
#include "compiler/schedule/search/Justify.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>
#include <utility>

namespace pipec::schedule {

VBlock vMinBlock(int p, int i) {
  int delta = p % 3 == 0 ? 2 : 0;
  return {{i, 2 * p - 1 - i}, {4 * p + delta - 1 - i, 2 * p + delta + i}};
}

VBlock vHalfBlock(int p, int i) {
  int delta = p % 2 == 0 ? 3 : 0;
  return {{2 * i, 3 * p - 2 - i},
          {6 * p + delta - 2 - i, 3 * p + delta - 1 + 2 * i}};
}

/// The slots of one device: its passes, then weight gradients in the free ones.
static std::vector<Action> fillSlots(const VBlock &block, int p, int device,
                                     int microbatches) {
  constexpr int kPeriod = 6;
  int stage[2] = {device, 2 * p - 1 - device};
  int last = std::max(block.backward[0], block.backward[1]);
  std::vector<int> slots(last + kPeriod * (microbatches + 1) + 1, -1);
  std::vector<Action> passes;
  for (int k = 0; k < microbatches; ++k)
    for (int c : {0, 1}) {
      slots[block.forward[c] + kPeriod * k] = static_cast<int>(passes.size());
      passes.push_back({Kind::F, stage[c], k});
      slots[block.backward[c] + kPeriod * k] = static_cast<int>(passes.size());
      passes.push_back({Kind::I, stage[c], k});
    }
  std::vector<Action> order;
  std::vector<Action> waiting;
  std::size_t weight = 0;
  for (int slot : slots) {
    if (slot >= 0) {
      order.push_back(passes[slot]);
      if (passes[slot].kind == Kind::I)
        waiting.push_back(
            {Kind::W, passes[slot].stage, passes[slot].microbatch});
    } else if (weight < waiting.size()) {
      order.push_back(waiting[weight++]);
    }
  }
  order.insert(order.end(), waiting.begin() + weight, waiting.end());
  return order;
}

namespace {

/// Where the passes of a device lie in the six slots; backwards take two.
struct Residues {
  int forward[2], backward[2];
};

std::vector<Residues> layouts() {
  std::vector<Residues> result;
  for (int f = 0; f < 6; ++f)
    for (int g = 0; g < 6; ++g)
      for (int b = 0; b < 6; ++b)
        for (int c = 0; c < 6; ++c) {
          unsigned used = 1u << f | 1u << g | 1u << b | 1u << (b + 1) % 6 |
                          1u << c | 1u << (c + 1) % 6;
          if (used == 63)
            result.push_back({{f, g}, {b, c}});
        }
  return result;
}

/// The least step of at least `least` from one residue to another.
int step(int from, int to, int least) {
  return ((to - from - least) % 6 + 6) % 6 + least;
}

/// From a device to the next one down: chunk 0 goes forwards, chunk 1 comes
/// back, and the backwards the other way round.
int steps(const Residues &here, const Residues &next) {
  return step(here.forward[0], next.forward[0], 1) +
         step(next.forward[1], here.forward[1], 1) +
         step(here.backward[1], next.backward[1], 2) +
         step(next.backward[0], here.backward[0], 2);
}

/// The layouts of all devices with the fewest steps in all; there are several
/// such, `variant` takes one after the other.
std::vector<Residues> fewestSteps(int devices, int variant) {
  const std::vector<Residues> all = layouts();
  std::vector<std::vector<int>> from(devices, std::vector<int>(all.size(), 0));
  std::vector<int> cost(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) // the turn at the first device
    cost[i] = step(all[i].forward[1], all[i].backward[1], 1);
  for (int d = 1; d < devices; ++d) {
    std::vector<int> next(all.size(), 1 << 30);
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::size_t j = 0; j < all.size(); ++j)
        if (int c = cost[i] + steps(all[i], all[j]);
            c < next[j] + variant % 2) {
          next[j] = c;
          from[d][j] = static_cast<int>(i);
        }
    cost = next;
  }
  auto whole = [&](std::size_t i) { // with the turns at the last device
    return cost[i] + step(all[i].forward[0], all[i].forward[1], 1) +
           step(all[i].backward[1], all[i].backward[0], 2);
  };
  std::vector<std::size_t> last(all.size());
  std::iota(last.begin(), last.end(), 0);
  std::ranges::sort(last, {},
                    [&](std::size_t i) { return std::pair(whole(i), i); });
  std::size_t best = last[variant / 2 % last.size()];
  std::vector<Residues> result(devices);
  for (int d = devices - 1; d >= 0; --d) {
    result[d] = all[best];
    best = from[d][best];
  }
  return result;
}

} // namespace

Schedule wholeBackwardsV(const ScheduleRequest &request, int variant) {
  int p = request.devices;
  std::vector<Residues> at = fewestSteps(p, variant);
  std::vector<VBlock> blocks(p);
  // The way of microbatch 0: down and up forwards, down and up backwards.
  struct Pass {
    int residue, time, *slot;
  };
  std::vector<Pass> way;
  for (int d = 0; d < p; ++d)
    way.push_back({at[d].forward[0], 1, &blocks[d].forward[0]});
  for (int d = p; d-- > 0;)
    way.push_back({at[d].forward[1], 1, &blocks[d].forward[1]});
  for (int d = 0; d < p; ++d)
    way.push_back({at[d].backward[1], 2, &blocks[d].backward[1]});
  for (int d = p; d-- > 0;)
    way.push_back({at[d].backward[0], 2, &blocks[d].backward[0]});
  int slot = way[0].residue;
  for (std::size_t i = 0; i < way.size(); ++i) {
    if (i > 0)
      slot += step(way[i - 1].residue, way[i].residue, way[i - 1].time);
    *way[i].slot = slot;
  }
  Schedule schedule = begin(request, zigzagPlacement(p, 2));
  for (int d = 0; d < p; ++d) {
    std::vector<std::pair<int, Action>> placed;
    for (int k = 0; k < request.microbatches; ++k)
      for (int c : {0, 1}) {
        int stage = c ? 2 * p - 1 - d : d;
        placed.push_back({blocks[d].forward[c] + 6 * k, {Kind::F, stage, k}});
        placed.push_back({blocks[d].backward[c] + 6 * k, {Kind::B, stage, k}});
      }
    std::sort(placed.begin(), placed.end(),
              [](const auto &a, const auto &b) { return a.first < b.first; });
    for (const auto &[when, action] : placed)
      schedule.order[d].push_back(action);
  }
  return schedule;
}

namespace {

/// Builds a device's list again: late weight gradients where the others, which
/// start at given times, leave room in time or take it in memory.
class LateWeights {
public:
  LateWeights(const search::Problem &problem, int device)
      : p(problem), device(device) {}

  void put(search::Task t, double at) {
    while (!waiting.empty() && (ends(waiting.front()) <= at + kRounding ||
                                !p.fits(held + rowOf(t).memory, device)))
      takeWaiting();
    take(t, at);
  }
  void wait(search::Task weight) { waiting.push_back(weight); }
  std::vector<search::Task> finish() {
    while (!waiting.empty())
      takeWaiting();
    return std::move(list);
  }

private:
  static constexpr double kRounding = 1e-9;

  const search::Row &rowOf(search::Task t) const { return p.rows[p.rowOf(t)]; }
  double ends(search::Task t) const { return freeAt + rowOf(t).time; }
  void take(search::Task t, double at) {
    freeAt = std::max(freeAt, at) + rowOf(t).time;
    held += rowOf(t).memory;
    list.push_back(t);
  }
  void takeWaiting() {
    take(waiting.front(), freeAt);
    waiting.pop_front();
  }

  const search::Problem &p;
  const int device;
  double freeAt = 0, held = 0;
  std::deque<search::Task> waiting;
  std::vector<search::Task> list;
};

} // namespace

/// Makes the weight gradients after a device's last forward late.
static search::Order weightsLast(const search::Problem &p,
                                 const search::Order &order) {
  std::vector<bool> late(p.taskIds(), false);
  search::Order others(p.devices);
  for (int d = 0; d < p.devices; ++d) {
    bool forwards = false;
    for (std::size_t i = order[d].size(); i-- > 0;) {
      const search::Task t = order[d][i];
      const int kind = p.rowOf(t) % 3;
      forwards = forwards || kind == 0;
      late[t] = kind == 2 && !forwards;
      if (!late[t])
        others[d].push_back(t);
    }
    std::reverse(others[d].begin(), others[d].end());
  }
  std::vector<double> starts;
  search::evaluate(p, others, &starts);
  search::Order result;
  for (int d = 0; d < p.devices; ++d) {
    LateWeights list(p, d);
    for (search::Task t : others[d]) {
      list.put(t, starts[t]);
      if (p.rowOf(t) % 3 != 1)
        continue;
      const search::Task weight = p.task(p.rowOf(t) + 1, p.microbatchOf(t));
      if (late[weight])
        list.wait(weight);
    }
    result.push_back(list.finish());
  }
  return result;
}

using Actions = std::vector<std::vector<Action>>;

/// The order without what idles at unit cost, at the same peak.
static Actions squeezed(const Schedule &schedule, Squeeze squeeze) {
  ScheduleRequest unit;
  unit.devices = schedule.devices();
  unit.microbatches = schedule.microbatches;
  search::Problem problem = search::makeProblem(unit, schedule.placement);
  search::Order order = search::toOrder(problem, schedule);
  double peak = 0;
  for (const auto &list : order) {
    double held = 0;
    for (search::Task t : list)
      peak = std::max(peak, held += problem.rows[problem.rowOf(t)].memory);
  }
  problem.limit.assign(unit.devices, peak);
  // Of many tasks the first round is the one that matters.
  const int rounds =
      search::hasManyTasks(problem.stages, problem.microbatches) ? 1 : 4;
  search::Result result;
  order = squeeze == Squeeze::Gaps
              ? search::improve(problem, order, rounds, result)
              : weightsLast(problem, search::justify(problem, order, false));
  return search::toSchedule(problem, order).order;
}

namespace {

/// The last patterns of many tasks: they depend on sizes alone, and the order
/// for equal stages is followed by those for the stages' costs.
class KeptPatterns {
public:
  using Key = std::tuple<VBlock (*)(int, int), Squeeze, int, int>;
  /// Others need not wait while one is made; of two made at a time the first is
  /// kept.
  Actions of(const Key &key, const std::function<Actions()> &make) {
    {
      std::lock_guard lock(mutex);
      if (auto it = kept.find(key); it != kept.end())
        return it->second;
    }
    Actions made = make();
    std::lock_guard lock(mutex);
    if (kept.size() == kMost && !kept.contains(key))
      kept.clear();
    return kept.try_emplace(key, std::move(made)).first->second;
  }

private:
  static constexpr std::size_t kMost = 2; // some 40 MB each
  std::mutex mutex;
  std::map<Key, Actions> kept;
};

} // namespace

Schedule repeatBlock(const ScheduleRequest &request, VBlock (*block)(int, int),
                     Squeeze squeeze) {
  const int p = request.devices, m = request.microbatches;
  Schedule schedule = begin(request, zigzagPlacement(p, 2));
  const auto published = [&] {
    for (int d = 0; d < p; ++d)
      schedule.order[d] = fillSlots(block(p, d), p, d, m);
  };
  if (squeeze == Squeeze::None) {
    published();
    return schedule;
  }
  const auto make = [&] {
    published();
    return squeezed(schedule, squeeze);
  };
  static KeptPatterns patterns;
  schedule.order = search::hasManyTasks(2 * p, m)
                       ? patterns.of({block, squeeze, p, m}, make)
                       : make();
  return schedule;
}

} // namespace pipec::schedule
