//===- Search.cpp - the best order found in a fixed effort ----------------===//
#include "compiler/schedule/search/Search.h"

#include "compiler/schedule/generators/Build.h"
#include "compiler/schedule/generators/Published.h"
#include "compiler/schedule/search/Block.h"
#include "compiler/schedule/search/Bounds.h"
#include "compiler/schedule/search/Exact.h"
#include "compiler/schedule/search/Greedy.h"
#include "compiler/schedule/search/Justify.h"
#include "support/Failure.h"
#include "support/Phase.h"

#include <algorithm>
#include <cmath>

namespace pipec::schedule::search {

namespace {

constexpr double kMostTasks = 4e6;

using Pattern = VBlock (*)(int, int);

struct Candidate {
  int problem = 0;
  int number = 0; ///< in order of creation
  Order order;
  Result result;
  std::string origin;
};

class Search {
public:
  /// Lays a search of effort `whole` out and does as much of it as `effort`
  /// suffices for.
  Search(const ScheduleRequest &request, const SearchOptions &options,
         double whole, double effort);
  std::optional<Found> run();

private:
  struct Instance {
    Family family;
    Problem problem;
    double bound = 0;
    std::vector<Pattern> squeezed = {vMinBlock, vHalfBlock};
  };

  double cost(const Candidate &c) const {
    return c.result.cost(request.metric);
  }
  bool left() const { return spent < budget && spent < end; }
  /// Whether nothing on a placement can be better than the best so far.
  bool hopeless(int index) const {
    return instances[index].bound >= least * (1 - 1e-12);
  }
  void charge(const Problem &p, double passes) {
    spent += passes * p.tasks();
    progress.at(static_cast<int64_t>(100 * std::min(1.0, spent / end)));
  }

  void seeds();
  double publishedSeed(int index, const std::string &name,
                       const std::string &variant,
                       const std::function<std::optional<Schedule>()> &make);
  void publishedSeeds(int index);
  void zigzagSeeds(int index);
  double patternSeed(int index, Pattern block, Squeeze squeeze);
  void patternSeeds(int index);
  void patterns();
  void policySeeds(int from, int to);
  void blockSeeds(int index);
  Order once(int index, const std::string &name, bool limited,
             const std::function<Order()> &make) const;
  double add(int index, Order order, const std::string &origin);
  void sort();
  void spread(std::size_t keep);
  void refine(std::size_t keep, int rounds);
  void shakeUp();
  void prove();
  bool optimal() const;

  const ScheduleRequest &request;
  std::vector<Instance> instances;
  std::vector<Candidate> pool;
  bool fused, exact;
  Known *known;
  int created = 0;
  double least = kNever; ///< cost of the best candidate
  double spent = 0, budget = 0;
  double end = 0; ///< of an effort that does not suffice for the budget
  Phase progress{"searching orders", Phase::kPercent};
};

Search::Search(const ScheduleRequest &request, const SearchOptions &options,
               double whole, double effort)
    : request(request), fused(options.fused),
      exact(options.prove && effort >= whole), known(options.known) {
  double largest = 0;
  // Placements with few stages are enough where the others are too large.
  auto tasks = [&](const Family &f) {
    return 3.0 * request.devices * f.chunks * request.microbatches;
  };
  double least = kNever;
  for (const Family &family : options.families)
    least = std::min(least, tasks(family));
  for (const Family &family : options.families) {
    if (tasks(family) > std::max(least, kMostTasks))
      continue;
    instances.push_back(
        {family, makeProblem(request, placementOf(family, request.devices)),
         0});
    if (fused)
      fuse(instances.back().problem);
    instances.back().bound = lowerBound(instances.back().problem);
    largest = std::max<double>(largest, instances.back().problem.tasks());
  }
  constexpr double kLeast = 3e5, kPerTask = 130, kMost = 5e6;
  const double unit =
      options.effort * std::clamp(kPerTask * largest, kLeast, kMost);
  budget = whole * unit;
  end = effort * unit;
}

/// What `make` gives, made once for all searches that share what is known.
Order Search::once(int index, const std::string &name, bool limited,
                   const std::function<Order()> &make) const {
  const Problem &p = instances[index].problem;
  return known ? known->order(p, name, limited, make) : make();
}

/// The order's cost; of what does not fit none.
double Search::add(int index, Order order, const std::string &origin) {
  const Problem &p = instances[index].problem;
  charge(p, 1);
  if (order.empty())
    return kNever;
  Candidate c{index, created++, std::move(order), {}, origin};
  c.result = evaluate(p, c.order);
  if (!c.result.fits)
    return kNever;
  const double own = cost(c);
  least = std::min(least, own);
  pool.push_back(std::move(c));
  return own;
}

double
Search::publishedSeed(int index, const std::string &name,
                      const std::string &variant,
                      const std::function<std::optional<Schedule>()> &make) {
  const Instance &instance = instances[index];
  Order order = once(index, name + variant, false, [&] {
    const std::optional<Schedule> schedule = make();
    return schedule ? toOrder(instance.problem, *schedule) : Order();
  });
  return order.empty() ? kNever : add(index, std::move(order), name);
}

void Search::publishedSeeds(int index) {
  const Family &f = instances[index].family;
  // Those with late weight gradients first: in a very large problem there may
  // be effort for one only.
  for (bool split : {true, false})
    for (const ScheduleRow &row : schedules())
      if (row.splitBackward == split && (left() || pool.empty()))
        publishedSeed(index, row.name, "",
                      [&] { return published(row.name, request, f); });
  if (!left())
    return;
  if (f.chunks == 1 && !fused)
    for (double factor : {1.25, 1.5, 1.75, 2.25, 2.5, 3.0})
      publishedSeed(index, "zb-h", std::to_string(factor),
                    [&] { return zbHandcrafted(request, factor); });
  if (f.layout == Layout::Zigzag && f.chunks == 2)
    zigzagSeeds(index);
}

void Search::zigzagSeeds(int index) {
  constexpr int kWholeVariants = 24;
  for (int variant = 0; fused && variant < kWholeVariants && left(); ++variant)
    publishedSeed(index, "1f1b-v", std::to_string(variant),
                  [&] { return wholeBackwardsV(request, variant); });
  publishedSeed(index, "zb-v", " for equal times",
                [&] { return zbVClosedForm(request); });
  patternSeeds(index);
}

double Search::patternSeed(int index, Pattern block, Squeeze squeeze) {
  return publishedSeed(index, block == vMinBlock ? "v-min" : "v-half",
                       " squeezed " + std::to_string(static_cast<int>(squeeze)),
                       [&] { return repeatBlock(request, block, squeeze); });
}

/// As published and squeezed. Of many tasks only that is squeezed, which takes
/// seconds, which is the shortest as published.
void Search::patternSeeds(int index) {
  Instance &instance = instances[index];
  if (!hasManyTasks(instance.problem.stages, instance.problem.microbatches)) {
    for (Pattern block : instance.squeezed)
      for (Squeeze squeeze : {Squeeze::None, Squeeze::Gaps})
        patternSeed(index, block, squeeze);
    return;
  }
  double shortest = kNever;
  std::vector<Pattern> worthIt;
  for (Pattern block : instance.squeezed)
    if (double own = patternSeed(index, block, Squeeze::None); own < shortest)
      shortest = own, worthIt = {block};
  instance.squeezed = std::move(worthIt);
  for (Pattern block : instance.squeezed)
    if (!hopeless(index))
      patternSeed(index, block, Squeeze::Gaps);
}

/// The published patterns at their best. As seeds they would mislead more often
/// than help; after the search they make sure that it is not behind them.
void Search::patterns() {
  const std::size_t before = pool.size();
  for (std::size_t i = 0; i < instances.size(); ++i)
    if (const Family &f = instances[i].family;
        f.layout == Layout::Zigzag && f.chunks == 2)
      for (Pattern block : instances[i].squeezed)
        if (!hopeless(static_cast<int>(i)))
          patternSeed(static_cast<int>(i), block, Squeeze::WeightsLast);
  if (pool.size() > before)
    sort();
}

/// The first policy whatever is left where limits may leave nothing else.
void Search::policySeeds(int from, int to) {
  for (int policy = from; policy < to; ++policy)
    for (std::size_t i = 0; i < instances.size(); ++i) {
      const Problem &p = instances[i].problem;
      const int index = static_cast<int>(i);
      const bool limited = std::ranges::any_of(
          p.limit, [](double limit) { return limit < kNever; });
      if (hopeless(index) || !(left() || (policy == 0 && limited)))
        continue;
      charge(p, 1);
      add(index,
          once(index, "policy " + std::to_string(policy), true,
               [&] { return greedy(p, policies()[policy]); }),
          "list scheduling");
    }
}

/// The shortest periods whose block fits, a few of each family.
void Search::blockSeeds(int index) {
  const Problem &p = instances[index].problem;
  constexpr int kPeriods = 64, kTaken = 3;
  constexpr double kStep = 0.02;
  BlockOptions options;
  // What must be held is held, whatever the order: no shorter period fits.
  const double work = p.work / p.microbatches;
  const double steady = holding(p) / p.microbatches / work;
  options.period = std::max(1.0, 1 + kStep * std::floor((steady - 1) / kStep));
  int taken = 0;
  for (int step = 0; step < kPeriods && taken < kTaken && left(); ++step) {
    spent += blockEffort(p, options);
    Order order = once(index, "block " + std::to_string(step), true,
                       [&] { return fittingBlock(p, options); });
    options.period += kStep;
    if (order.empty())
      continue;
    ++taken;
    add(index, std::move(order), "building block");
  }
}

void Search::seeds() {
  for (std::size_t i = 0; i < instances.size(); ++i)
    publishedSeeds(static_cast<int>(i));
  int n = static_cast<int>(policies().size());
  double whole = budget;
  budget = spent + 0.25 * (whole - std::min(spent, whole));
  policySeeds(0, 3);
  for (std::size_t i = 0; i < instances.size(); ++i)
    if (!hopeless(static_cast<int>(i)))
      blockSeeds(static_cast<int>(i));
  policySeeds(3, n);
  budget = whole;
}

void Search::sort() {
  std::sort(
      pool.begin(), pool.end(), [&](const Candidate &a, const Candidate &b) {
        return cost(a) != cost(b) ? cost(a) < cost(b) : a.number < b.number;
      });
}

/// Keeps the best candidates, those of different placements first: what leads
/// before the local search need not lead after it.
void Search::spread(std::size_t keep) {
  sort();
  std::vector<bool> seen(instances.size(), false);
  std::vector<Candidate> first, rest;
  for (Candidate &c : pool) {
    auto &to = seen[c.problem] ? rest : first;
    seen[c.problem] = true;
    to.push_back(std::move(c));
  }
  std::ranges::move(rest, std::back_inserter(first));
  pool = std::move(first);
  if (pool.size() > keep)
    pool.resize(keep);
}

/// Keeps the best candidates and improves each.
void Search::refine(std::size_t keep, int rounds) {
  spread(keep);
  for (Candidate &c : pool) {
    if (!left())
      return;
    const Problem &p = instances[c.problem].problem;
    int passes = 0;
    Result result;
    Order order = known ? known->improve(p, c.order, rounds, result, passes)
                        : improve(p, c.order, rounds, result, &passes);
    charge(p, passes);
    if (result.cost(request.metric) < cost(c) * (1 - 1e-9)) {
      c.order = std::move(order);
      c.result = result;
    }
  }
}

/// Iterated local search on the best few in turn: shake, improve, keep what is
/// no worse. Small and large shakes take turns, too, and the whole order with
/// its beginning and its end, where most of the idle time is.
void Search::shakeUp() {
  constexpr std::size_t kLineages = 3;
  constexpr double kRates[] = {0.05, 0.3, 1};
  enum { Whole, Beginning, End, Places };
  spread(kLineages);
  Shake shake;
  for (std::size_t turn = 0; left() && !optimal(); ++turn) {
    Candidate &c = pool[turn / std::size(kRates) % pool.size()];
    const Problem &p = instances[c.problem].problem;
    shake.rate = kRates[turn % std::size(kRates)];
    const std::size_t place = turn / kLineages / std::size(kRates) % Places;
    // A microbatch on each device.
    const double length = p.work / p.microbatches * p.devices;
    const double rest = std::max(0.0, c.result.makespan - length);
    shake.from = place == End ? rest : 0;
    shake.to = place == Beginning ? length : kNever;
    Result result;
    Order order = justify(p, c.order, turn % 2, &result, &shake);
    int passes = 1;
    if (!order.empty())
      order = improve(p, order, 2, result, &passes);
    charge(p, passes);
    if (!order.empty() && result.cost(request.metric) <= cost(c)) {
      c.order = std::move(order);
      c.result = result;
    }
  }
  sort();
}

/// Whether some candidate is as short as any order can be. The bound is that
/// of its own placement: others may have a lower one, so this only says when
/// to stop looking where the search is.
bool Search::optimal() const {
  for (const Candidate &c : pool)
    if (cost(c) <= instances[c.problem].bound * (1 + 1e-12))
      return true;
  return false;
}

/// Small problems: the best order there is on the best placement, unless the
/// tree is too large.
void Search::prove() {
  constexpr int kSmall = 128;
  constexpr long long kMostNodes = 30000;
  Candidate &best = pool[0];
  const Problem &p = instances[best.problem].problem;
  constexpr std::size_t kMostRows = 64; // of a device: one bit each
  const bool wide = std::ranges::any_of(
      p.rowsOf, [&](const auto &rows) { return rows.size() > kMostRows; });
  if (optimal() || p.tasks() > kSmall || wide)
    return;
  const Phase proving("proving");
  Exact exact = solveExactly(p, cost(best), kMostNodes);
  if (exact.order.empty())
    return;
  best.order = std::move(exact.order);
  best.result = exact.result;
  best.origin = "branch and bound";
}

std::optional<Found> Search::run() {
  seeds();
  refine(24, 1);
  refine(8, 2);
  refine(4, 4);
  if (!pool.empty())
    shakeUp();
  patterns();
  if (pool.empty())
    return std::nullopt;
  if (exact)
    prove();
  Candidate &best = pool[0];
  const Problem &p = instances[best.problem].problem;
  return Found{toSchedule(p, best.order), best.result, best.origin};
}

} // namespace

std::vector<std::vector<int>> placementOf(const Family &family, int devices) {
  return family.layout == Layout::Zigzag
             ? zigzagPlacement(devices, family.chunks)
             : loopedPlacement(devices, family.chunks);
}

std::vector<Found> findEach(const ScheduleRequest &request,
                            const SearchOptions &options) {
  constexpr double kStep = 10;
  std::vector<Found> each;
  for (double whole = 1;; whole *= kStep) {
    const double effort = std::min(whole, request.effort);
    if (options.completeOnly && effort < whole)
      return each;
    if (auto found = Search(request, options, whole, effort).run())
      each.push_back(std::move(*found));
    if (request.effort <= whole)
      return each;
  }
}

std::optional<Found> findBest(const ScheduleRequest &request,
                              const SearchOptions &options) {
  std::vector<Found> each = findEach(request, options);
  if (each.empty())
    return std::nullopt;
  auto cost = [&](const Found &f) { return f.result.cost(request.metric); };
  return std::move(*std::ranges::min_element(each, {}, cost));
}

std::optional<Schedule> published(const char *name,
                                  const ScheduleRequest &request,
                                  const Family &family) {
  const ScheduleRow *row = findSchedule(name);
  bool plain = family.chunks == 1 && row->layout == Layout::Linear;
  if (row->readsCosts || !row->synchronous || row->layout == Layout::Replicated)
    return std::nullopt;
  if (!plain && row->layout != family.layout)
    return std::nullopt;
  if (row->chunks == ChunkRule::Two && family.chunks != 2)
    return std::nullopt;
  ScheduleRequest asked = request;
  asked.chunks = family.chunks;
  asked.slices = 0;
  try {
    Schedule schedule = row->make(asked);
    if (schedule.slices > 1)
      return std::nullopt;
    return schedule;
  } catch (const Failure &) {
    return std::nullopt; // sizes it does not serve
  }
}

} // namespace pipec::schedule::search
