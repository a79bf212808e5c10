#include "compiler/plan/published/StraddleSearch.h"

#include "compiler/plan/published/PipeDreamMemory.h"
#include "support/Phase.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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
        reducePerByte(width(), 0) {}

  PipeDreamPlan run();

private:
  struct From {
    uint32_t cut = 0;
    uint16_t replicasBefore = 0;
  };
  size_t width() const {
    return static_cast<size_t>((devices + 1) * (devices + 1));
  }
  /// Entry of a prefix that ends at a state, uses `used` devices, `last` of
  /// them for its last stage.
  size_t index(size_t state, int used, int last) const {
    return state * width() + static_cast<size_t>(used * (devices + 1) + last);
  }
  /// Moving everything by whole machines of the outermost level changes
  /// nothing.
  double perByte(int border, int a, int b) {
    const auto place = static_cast<size_t>(border % period);
    double &known = boundaryPerByte[place * width() +
                                    static_cast<size_t>(a * (devices + 1) + b)];
    if (known < 0)
      known = straddlingBoundary(levels, border, a, b, 1.0);
    return known;
  }
  void expand(size_t k);
  void relax(size_t k, size_t j, int used, int next, double before,
             uint16_t replicasBefore);

  const CutStates &states;
  const std::vector<PipeDreamLevel> &levels;
  const int period; ///< devices of one machine of the outermost level
  const int devices;
  double cap;
  const double limit; ///< of bytes; devices that stay idle count as in use
  std::vector<double> value;
  std::vector<From> origin;
  std::vector<double> boundaryPerByte, reducePerByte;
};

void Search::relax(size_t k, size_t j, int used, int next, double before,
                   uint16_t replicasBefore) {
  double compute = states.seconds[j] - states.seconds[k];
  double weights = states.weights[j] - states.weights[k];
  double reduce =
      reducePerByte[static_cast<size_t>(used * (devices + 1) + next)] * weights;
  double t = std::max(before, (compute + reduce) / next);
  size_t at = index(j, used + next, next);
  if (t < value[at] && t < cap &&
      (limit <= 0 || stageBytes(states, k, j, devices - used, next) <= limit)) {
    value[at] = t;
    origin[at] = {static_cast<uint32_t>(k), replicasBefore};
  }
}

/// Starts every next stage after the prefixes that end at k.
void Search::expand(size_t k) {
  double end = states.seconds.back();
  for (int used = k == 0 ? 0 : 1; used < (k == 0 ? 1 : devices); ++used) {
    // What is left must fit on the devices that are left.
    if (end - states.seconds[k] > cap * (devices - used))
      continue;
    bool any = k == 0;
    for (int last = 1; last <= used && !any; ++last)
      any = value[index(k, used, last)] < cap;
    if (!any)
      continue;
    for (int next = 1; used + next <= devices; ++next) {
      double before = k == 0 ? 0 : inf;
      uint16_t replicasBefore = 0;
      for (int last = 1; k != 0 && last <= used; ++last) {
        double prefix = value[index(k, used, last)];
        if (prefix >= before)
          continue;
        double t = std::max(prefix, perByte(used, last, next) * states.cut[k]);
        if (t < before)
          before = t, replicasBefore = static_cast<uint16_t>(last);
      }
      if (before >= cap)
        continue;
      double most = cap * next,
             least = end - states.seconds[k] - cap * (devices - used);
      for (uint32_t j : states.above[k]) {
        double compute = states.seconds[j] - states.seconds[k];
        bool last = j + 1 == states.size();
        if (compute <= most && compute >= least &&
            (last || used + next < devices))
          relax(k, j, used, next, before, replicasBefore);
      }
    }
  }
}

PipeDreamPlan Search::run() {
  for (int used = 0; used < devices; ++used)
    for (int next = 1; used + next <= devices; ++next)
      reducePerByte[static_cast<size_t>(used * (devices + 1) + next)] =
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
      if (value[index(state, u, r)] < plan.seconds)
        plan.seconds = value[index(state, u, r)], used = u, last = r;
  if (last == 0) {
    plan.seconds = inf;
    return plan;
  }
  while (used > 0) {
    From from = origin[index(state, used, last)];
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

PipeDreamPlan searchStraddling(const CutStates &states,
                               const std::vector<PipeDreamLevel> &levels,
                               double incumbent, double limit) {
  const int all = devicesBelow(levels, levels.size());
  if (limit <= 0)
    return Search(states, levels, all, incumbent, 0).run();
  PipeDreamPlan best;
  for (int devices = all; devices > 0; --devices) {
    PipeDreamPlan plan =
        Search(states, levels, devices, incumbent, limit).run();
    if (plan.seconds < best.seconds) {
      incumbent = plan.seconds;
      best = std::move(plan);
    }
  }
  return best;
}

} // namespace pipec::published
