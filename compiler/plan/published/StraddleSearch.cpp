#include "compiler/plan/published/StraddleSearch.h"

#include "compiler/plan/published/PipeDreamMemory.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace pipec::published {

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

/// How many servers a run of devices touches, and the most of it in one server.
struct Span {
  int servers = 1, most = 1;
};
Span spanOf(int first, int replicas, int each) {
  int last = first + replicas - 1;
  Span span;
  span.servers = last / each - first / each + 1;
  if (span.servers == 1)
    span.most = replicas;
  else if (span.servers > 2)
    span.most = each;
  else
    span.most = std::max(each - first % each, last % each + 1);
  return span;
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

double straddlingStage(const PipeDreamLevel &inner, const PipeDreamLevel &outer,
                       int first, int replicas, double compute,
                       double weights) {
  Span span = spanOf(first, replicas, inner.machines);
  double reduce =
      4 * (span.most - 1) * weights / (inner.bandwidth * span.most) +
      4 * (span.servers - 1) * weights / (outer.bandwidth * span.servers);
  return (compute + reduce) / replicas;
}

double straddlingBoundary(const PipeDreamLevel &inner,
                          const PipeDreamLevel &outer, int border, int a, int b,
                          double bytes) {
  double own = 2 * bytes / (inner.bandwidth * std::min(a, b));
  double card =
      2 * bytes * busiestCard(border, a, b, inner.machines) / outer.bandwidth;
  return std::max(own, card);
}

double straddlingSeconds(const CutStates &states, const PipeDreamLevel &inner,
                         const PipeDreamLevel &outer,
                         const PipeDreamPlan &plan) {
  double seconds = 0;
  int first = 0, before = 0;
  for (const PipeDreamStage &stage : plan.stages) {
    seconds =
        std::max(seconds, straddlingStage(inner, outer, first, stage.replicas,
                                          states.seconds[stage.after] -
                                              states.seconds[stage.before],
                                          states.weights[stage.after] -
                                              states.weights[stage.before]));
    if (before > 0)
      seconds = std::max(seconds, straddlingBoundary(inner, outer, first,
                                                     before, stage.replicas,
                                                     states.cut[stage.before]));
    first += before = stage.replicas;
  }
  return seconds;
}

namespace {

class Search {
public:
  Search(const CutStates &states, const PipeDreamLevel &inner,
         const PipeDreamLevel &outer, int devices, double incumbent,
         double limit)
      : states(states), inner(inner), outer(outer), devices(devices),
        cap(incumbent), limit(limit), value(states.size() * width(), inf),
        origin(states.size() * width()),
        boundaryPerByte(static_cast<size_t>(inner.machines) * width(), -1),
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
  /// Moving everything by whole servers changes nothing.
  double perByte(int border, int a, int b) {
    const auto place = static_cast<size_t>(border % inner.machines);
    double &known = boundaryPerByte[place * width() +
                                    static_cast<size_t>(a * (devices + 1) + b)];
    if (known < 0)
      known = straddlingBoundary(inner, outer, border, a, b, 1.0);
    return known;
  }
  void expand(size_t k);
  void relax(size_t k, size_t j, int used, int next, double before,
             uint16_t replicasBefore);

  const CutStates &states;
  const PipeDreamLevel inner, outer;
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
          straddlingStage(inner, outer, used, next, 0, 1.0) * next;
  for (size_t k = 0; k + 1 < states.size(); ++k)
    expand(k);
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
                               const PipeDreamLevel &inner,
                               const PipeDreamLevel &outer, double incumbent,
                               double limit) {
  const int all = inner.machines * outer.machines;
  if (limit <= 0)
    return Search(states, inner, outer, all, incumbent, 0).run();
  PipeDreamPlan best;
  for (int devices = all; devices > 0; --devices) {
    PipeDreamPlan plan =
        Search(states, inner, outer, devices, incumbent, limit).run();
    if (plan.seconds < best.seconds) {
      incumbent = plan.seconds;
      best = std::move(plan);
    }
  }
  return best;
}

} // namespace pipec::published
