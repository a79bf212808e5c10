#include "compiler/plan/published/StraddleSearch.h"

#include "compiler/plan/published/PipeDreamMemory.h"
#include "support/Phase.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace pipec::published {

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

/// The most machines of `each` devices that a run of devices touches in one
/// component of so many of them.
int mostInOne(int first, int replicas, int each, int machines) {
  const int begin = first / each, last = (first + replicas - 1) / each;
  const int components = last / machines - begin / machines + 1;
  if (components == 1)
    return last - begin + 1;
  if (components > 2)
    return machines;
  return std::max(machines - begin % machines, last % machines + 1);
}

/// Share of all minibatches that the busiest server's card carries over a
/// border: those with one of their two replicas in it. Only the server that the
/// border runs through has replicas of both, and of lcm(a, b) minibatches each
/// pair of replicas whose numbers are equal modulo gcd(a, b) handles one.
double busiestCard(int border, int a, int b, int each) {
  const int divisor = std::gcd(a, b);
  const double period = static_cast<double>(a) / divisor * b;
  double busiest = 0;
  for (int server = (border - a) / each; server <= (border + b - 1) / each;
       ++server) {
    const int first = server * each, last = first + each;
    const int before =
        std::max(0, std::min(last, border) - std::max(first, border - a));
    const int after =
        std::max(0, std::min(last, border + b) - std::max(first, border));
    double inside = 0;
    for (int i = a - before; before > 0 && after > 0 && i < a; ++i) {
      const int smallest = i % divisor;
      if (smallest < after)
        inside += (after - 1 - smallest) / divisor + 1;
    }
    busiest = std::max(busiest, static_cast<double>(before) / a +
                                    static_cast<double>(after) / b -
                                    2 * inside / period);
  }
  return busiest;
}

} // namespace

double straddlingStage(const std::vector<PipeDreamLevel> &levels, int first,
                       int replicas, double compute, double weights) {
  double reduce = 0;
  int each = 1;
  for (const PipeDreamLevel &level : levels) {
    const int most = mostInOne(first, replicas, each, level.machines);
    reduce += 4 * (most - 1) * weights / (level.bandwidth * most);
    each *= level.machines;
  }
  return (compute + reduce) / replicas;
}

double straddlingBoundary(const std::vector<PipeDreamLevel> &levels, int border,
                          int a, int b, double bytes) {
  double seconds = 2 * bytes / (levels[0].bandwidth * std::min(a, b));
  int each = 1;
  for (size_t l = 1; l < levels.size(); ++l) {
    each *= levels[l - 1].machines;
    seconds = std::max(seconds, 2 * bytes * busiestCard(border, a, b, each) /
                                    levels[l].bandwidth);
  }
  return seconds;
}

double straddlingSeconds(const CutStates &states,
                         const std::vector<PipeDreamLevel> &levels,
                         const PipeDreamPlan &plan) {
  double seconds = 0;
  int first = 0, before = 0;
  for (const PipeDreamStage &stage : plan.stages) {
    seconds =
        std::max(seconds, straddlingStage(levels, first, stage.replicas,
                                          states.seconds[stage.after] -
                                              states.seconds[stage.before],
                                          states.weights[stage.after] -
                                              states.weights[stage.before]));
    if (before > 0)
      seconds = std::max(seconds, straddlingBoundary(levels, first, before,
                                                     stage.replicas,
                                                     states.cut[stage.before]));
    first += before = stage.replicas;
  }
  return seconds;
}

namespace {

class Search {
public:
  Search(const CutStates &states, const std::vector<PipeDreamLevel> &levels,
         int devices, double incumbent, double limit)
      : states(states), levels(levels),
        period(devicesBelow(levels, levels.size() - 1)), devices(devices),
        cap(incumbent), limit(limit), value(states.size() * width(), inf),
        origin(states.size() * width()),
        boundaryPerByte(static_cast<size_t>(period) * width(), -1),
        reducePerByte(width(), 0), before(width(), inf),
        replicasBefore(width()),
        entries(static_cast<double>(states.size() * width())) {}

  PipeDreamPlan run();
  /// Entries that were there or looked at.
  double tried() const { return entries; }

private:
  struct From {
    uint32_t cut = 0;
    uint16_t replicasBefore = 0;
  };
  size_t width() const {
    return static_cast<size_t>((devices + 1) * (devices + 1));
  }
  size_t pairOf(int used, int next) const {
    return static_cast<size_t>(used * (devices + 1) + next);
  }
  /// Entry of a prefix that ends at a state, whose last stage has `last`
  /// devices behind `used` others.
  size_t index(size_t state, int used, int last) const {
    return state * width() + pairOf(used, last);
  }
  /// Moving everything by whole machines of the outermost level changes
  /// nothing.
  double perByte(int border, int a, int b) {
    const auto place = static_cast<size_t>(border % period);
    double &known = boundaryPerByte[place * width() + pairOf(a, b)];
    if (known < 0)
      known = straddlingBoundary(levels, border, a, b, 1.0);
    return known;
  }
  void findMostUsed();
  void findBefore(size_t k);
  void expand(size_t k);
  void relax(size_t k, size_t j, int used, int fewest);

  const CutStates &states;
  const std::vector<PipeDreamLevel> &levels;
  const int period; ///< devices of one machine of the outermost level
  const int devices;
  const double cap;
  const double limit; ///< of bytes; devices that stay idle count as in use
  std::vector<double> value;
  std::vector<From> origin;
  std::vector<double> boundaryPerByte, reducePerByte;
  std::vector<int>
      mostUsed; ///< devices before and in the stage that ends there
  /// Of the best prefix that ends at a cut, by the devices in use and those of
  /// the next stage: seconds with the boundary, and its last stage's replicas.
  std::vector<double> before;
  std::vector<uint16_t> replicasBefore;
  std::vector<int> inUse; ///< devices, where there is a prefix of use
  double entries;
};

/// What is behind a state must fit on the devices that are left.
void Search::findMostUsed() {
  for (const double seconds : states.seconds) {
    int used = devices - 1;
    while (used > 0 && states.seconds.back() - seconds > cap * (devices - used))
      --used;
    mostUsed.push_back(used);
  }
  mostUsed.back() = devices;
}

/// The best prefix before every next stage behind k.
void Search::findBefore(size_t k) {
  inUse.clear();
  if (k == 0) {
    std::fill_n(before.begin(), devices + 1, 0.0);
    inUse.push_back(0);
    return;
  }
  std::vector<std::pair<int, double>> prefixes; // by their last stages' devices
  for (int used = 1; used <= mostUsed[k]; ++used) {
    prefixes.clear();
    for (int last = 1; last <= used; ++last)
      if (const double t = value[index(k, used - last, last)]; t < cap)
        prefixes.emplace_back(last, t);
    bool any = false;
    entries += static_cast<double>(prefixes.size()) * (devices - used);
    for (int next = 1; !prefixes.empty() && used + next <= devices; ++next) {
      double best = inf;
      int replicas = 0;
      for (const auto &[last, seconds] : prefixes) {
        if (seconds >= best)
          continue;
        const double t =
            std::max(seconds, perByte(used, last, next) * states.cut[k]);
        if (t < best)
          best = t, replicas = last;
      }
      before[pairOf(used, next)] = best;
      replicasBefore[pairOf(used, next)] = static_cast<uint16_t>(replicas);
      any |= best < cap;
    }
    if (any)
      inUse.push_back(used);
  }
}

/// The stage from k to j behind `used` devices, on `fewest` and more.
void Search::relax(size_t k, size_t j, int used, int fewest) {
  const double compute = states.seconds[j] - states.seconds[k];
  const double weights = states.weights[j] - states.weights[k];
  const int most = mostUsed[j] - used;
  entries += most - fewest + 1;
  for (int next = fewest; next <= most; ++next) {
    const size_t pair = pairOf(used, next), at = j * width() + pair;
    if (before[pair] >= cap)
      continue;
    const double t = std::max(before[pair],
                              (compute + reducePerByte[pair] * weights) / next);
    if (t < cap && t < value[at] &&
        (limit <= 0 ||
         stageBytes(states, k, j, devices - used, next) <= limit)) {
      value[at] = t;
      origin[at] = {static_cast<uint32_t>(k), replicasBefore[pair]};
    }
  }
}

/// Starts every next stage after the prefixes that end at k. One end after the
/// other: a state's entries are near each other.
void Search::expand(size_t k) {
  findBefore(k);
  if (inUse.empty())
    return;
  for (const uint32_t j : states.above[k]) {
    const double compute = states.seconds[j] - states.seconds[k];
    int fewest = 1;
    while (fewest <= mostUsed[j] && compute > cap * fewest)
      ++fewest;
    for (const int used : inUse) {
      if (used + fewest > mostUsed[j])
        break;
      relax(k, j, used, fewest);
    }
  }
}

PipeDreamPlan Search::run() {
  findMostUsed();
  for (int used = 0; used < devices; ++used)
    for (int next = 1; used + next <= devices; ++next)
      reducePerByte[pairOf(used, next)] =
          straddlingStage(levels, used, next, 0, 1.0) * next;
  Phase searching("searching cuts", std::ssize(states.seconds));
  for (size_t k = 0; k + 1 < states.size(); ++k) {
    searching.next();
    expand(k);
  }
  size_t state = states.size() - 1;
  int used = 0, last = 0;
  PipeDreamPlan plan;
  plan.seconds = cap;
  for (int u = 1; u <= devices; ++u)
    for (int r = 1; r <= u; ++r)
      if (const double t = value[index(state, u - r, r)]; t < plan.seconds)
        plan.seconds = t, used = u, last = r;
  if (last == 0) {
    plan.seconds = inf;
    return plan;
  }
  while (used > 0) {
    From from = origin[index(state, used - last, last)];
    PipeDreamStage stage{from.cut, state, last, {}};
    for (int d = used - last; d < used; ++d)
      stage.devices.push_back(d);
    plan.stages.insert(plan.stages.begin(), stage);
    state = from.cut;
    used -= last;
    last = from.replicasBefore;
  }
  return plan;
}

} // namespace

/// All numbers of devices, the largest first, in steps of a power of two and
/// then of half of it, so that the first few stand for all.
static std::vector<int> numbersOf(int all) {
  std::vector<int> numbers;
  std::vector<char> isThere(static_cast<size_t>(all) + 1);
  for (int stride = static_cast<int>(std::bit_ceil(unsigned(all))); stride > 0;
       stride /= 2)
    for (int devices = all; devices > 0; devices -= stride)
      if (!std::exchange(isThere[static_cast<size_t>(devices)], 1))
        numbers.push_back(devices);
  return numbers;
}

PipeDreamPlan searchStraddling(const CutStates &states,
                               const std::vector<PipeDreamLevel> &levels,
                               double incumbent, double limit,
                               SearchEffort *effort) {
  const int all = devicesBelow(levels, levels.size());
  if (limit <= 0)
    return Search(states, levels, all, incumbent, 0).run();
  PipeDreamPlan best;
  const double work = states.seconds.back() * (1 - 1e-12);
  for (const int devices : numbersOf(all)) {
    if (work >= incumbent * devices) // so few cannot do it in time
      continue;
    if (effort && effort->left < 0 && devices < all) {
      effort->isEvery = false;
      break;
    }
    Search search(states, levels, devices, incumbent, limit);
    PipeDreamPlan plan = search.run();
    if (effort)
      effort->left -= search.tried();
    if (plan.seconds < best.seconds) {
      incumbent = plan.seconds;
      best = std::move(plan);
    }
  }
  return best;
}

} // namespace pipec::published
