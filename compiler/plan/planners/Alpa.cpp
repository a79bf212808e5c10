//===- Alpa.cpp - Alpa's inter-operator planner ---------------------------===//
//
// Operators are clustered into layers of about equal work with little traffic
// between them; layers form stages on submeshes of one server's power-of-two
// parts or of whole servers. For a bound on the slowest stage a dynamic program
// minimizes the sum of the stages; sum + (B - 1) * slowest is the objective
// (section 5 of the paper). Inside a submesh a stage is data parallel: the
// integer program's other choices shard operators, which stages here do not do.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/Collective.h"
#include "compiler/plan/Refine.h"
#include "compiler/plan/planners/Planners.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace pipec::plan {

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

/// Clusters operators: G(k, r) = min over i of max(G(i, r-1), bytes into i..k),
/// no layer above (1 + slack) of the mean work.
std::vector<size_t> cluster(const Layers &fine, size_t layers, double slack) {
  size_t n = fine.count();
  if (layers >= n)
    return fine.starts;
  std::vector<double> work(n + 1, 0);
  for (size_t i = 0; i < n; ++i)
    work[i + 1] = work[i] + fine.costs[i].seconds();
  double largest = 0;
  for (const StageCost &cost : fine.costs)
    largest = std::max(largest, cost.seconds());
  double most =
      std::max((1 + slack) * work[n] / static_cast<double>(layers), largest);
  struct Entry {
    double bytes = inf, spread = inf;
    size_t from = 0;
  };
  std::vector<std::vector<Entry>> table(layers + 1, std::vector<Entry>(n + 1));
  table[0][0] = {0, 0, 0};
  for (size_t r = 1; r <= layers; ++r)
    for (size_t k = r; k <= n; ++k)
      for (size_t i = k; i-- > r - 1;) {
        double mine = work[k] - work[i];
        if (mine > most && k - i > 1)
          break;
        const Entry &before = table[r - 1][i];
        if (before.bytes == inf)
          continue;
        double into =
            i == 0 ? 0 : static_cast<double>(fine.costs[i].receiveBytes);
        Entry e{std::max(before.bytes, into), before.spread + mine * mine, i};
        Entry &best = table[r][k];
        if (e.bytes < best.bytes ||
            (e.bytes == best.bytes && e.spread < best.spread))
          best = e;
      }
  if (table[layers][n].bytes == inf)
    return fine.starts;
  std::vector<size_t> starts;
  for (size_t r = layers, k = n; r > 0; --r) {
    k = table[r][k].from;
    starts.push_back(fine.starts[k]);
  }
  std::reverse(starts.begin(), starts.end());
  return starts;
}

struct Stage {
  size_t first = 0, end = 0;
  int devices = 0;
};

/// All stages on submeshes with their times, then the dynamic program per
/// bound.
class InterOperator {
public:
  InterOperator(const PlanRequest &request, const StepModel &model,
                std::vector<size_t> starts);
  /// Stages of the best plan, first to last; empty when none fits.
  std::vector<Stage> solve();

private:
  double time(size_t i, size_t j, size_t m) const {
    return times[(i * (n + 1) + j) * meshes.size() + m];
  }
  double plan(double bound, std::vector<Stage> *stages) const;
  size_t mostBounds() const;

  const PlanRequest &request;
  const StepModel &model;
  std::vector<size_t> starts;
  size_t n;
  std::vector<int> meshes;
  std::vector<double> times;
  std::vector<ByteRates> bytes;
};

InterOperator::InterOperator(const PlanRequest &request, const StepModel &model,
                             std::vector<size_t> from)
    : request(request), model(model), starts(std::move(from)),
      n(starts.size()) {
  int server = request.topology.levels.back().count,
      all = request.topology.devices();
  for (int m = 1; m < server; m *= 2)
    meshes.push_back(m);
  for (int servers = 1; servers * server <= all; ++servers)
    meshes.push_back(servers * server);
  times.assign((n + 1) * (n + 1) * meshes.size(), inf);
  bytes.resize((n + 1) * (n + 1));
  std::vector<AllReduceCost> reduce;
  for (int m : meshes) {
    std::vector<int> group(static_cast<size_t>(m));
    std::iota(group.begin(), group.end(), 0);
    reduce.push_back(allReduceCost(request.topology, group));
  }
  for (size_t i = 0; i < n; ++i) {
    IntervalCosts::Sweep sweep(model.intervals(), starts[i]);
    for (size_t j = i + 1; j <= n; ++j) {
      const StageCost &cost =
          sweep.growTo((j < n ? starts[j] : model.intervals().nodes()) - 1);
      bytes[i * (n + 1) + j] = model.byteRates(cost);
      for (size_t m = 0; m < meshes.size(); ++m)
        times[(i * (n + 1) + j) * meshes.size() + m] =
            cost.seconds() / meshes[m] +
            reduce[m].seconds(cost.parameterBytes) /
                std::max(1, request.microbatches);
    }
  }
}

/// F(s, k, d): least sum of stage times of layers k.. in s stages on d devices,
/// no stage above `bound`. The stage count decides what a stage keeps in
/// flight.
double InterOperator::plan(double bound, std::vector<Stage> *stages) const {
  int all = request.topology.devices();
  size_t width = static_cast<size_t>(all) + 1,
         depth = std::min<size_t>(n, width - 1);
  depth = std::min<size_t>(depth, 32);
  struct Entry {
    double sum = inf;
    size_t end = 0, mesh = 0;
  };
  std::vector<std::vector<Entry>> table(depth + 1,
                                        std::vector<Entry>((n + 1) * width));
  table[0][n * width] = {0, 0, 0};
  double best = inf;
  size_t bestDepth = 0;
  for (size_t s = 1; s <= depth; ++s) {
    for (size_t k = n; k-- > 0;)
      for (size_t end = k + 1; end <= n; ++end)
        for (size_t m = 0; m < meshes.size(); ++m) {
          double t = time(k, end, m);
          if (t > bound)
            continue;
          for (size_t d = static_cast<size_t>(meshes[m]); d < width; ++d) {
            const Entry &rest =
                table[s - 1][end * width + d - static_cast<size_t>(meshes[m])];
            Entry &here = table[s][k * width + d];
            if (rest.sum + t >= here.sum)
              continue;
            Keeps keeps =
                keepsAt(request, {0, static_cast<int>(s), meshes[m],
                                  static_cast<int>(d), request.microbatches});
            const ByteRates &rates = bytes[k * (n + 1) + end];
            bool again = request.recompute == Recompute::Full;
            bool fits = rates.total(keeps, again) <= model.limit() ||
                        (request.recompute == Recompute::Auto &&
                         rates.total(keeps, true) <= model.limit());
            if (fits)
              here = {rest.sum + t, end, m};
          }
        }
    if (table[s][width - 1].sum < best)
      best = table[s][width - 1].sum, bestDepth = s;
  }
  if (stages && best < inf) {
    stages->clear();
    size_t k = 0, d = width - 1;
    for (size_t s = bestDepth; s > 0; --s) {
      const Entry &e = table[s][k * width + d];
      stages->push_back({k, e.end, meshes[e.mesh]});
      d -= static_cast<size_t>(meshes[e.mesh]);
      k = e.end;
    }
  }
  return best;
}

/// How many bounds are tried: all on small problems, and as many as a fifth of
/// a second or so leaves time for, at least 24, on large ones.
size_t InterOperator::mostBounds() const {
  const double devices = request.topology.devices();
  const double steps = std::min(static_cast<double>(n), devices) *
                       static_cast<double>(n * n * meshes.size()) * devices;
  return std::max<size_t>(24, static_cast<size_t>(1e8 / steps));
}

std::vector<Stage> InterOperator::solve() {
  std::vector<double> bounds;
  for (double t : times)
    if (t < inf)
      bounds.push_back(t);
  // Of bounds that are as good as equal the largest, which excludes nothing.
  std::sort(bounds.rbegin(), bounds.rend());
  bounds.erase(
      std::unique(bounds.begin(), bounds.end(),
                  [](double a, double b) { return a - b <= 1e-3 * a; }),
      bounds.end());
  std::reverse(bounds.begin(), bounds.end());
  // The smallest feasible bound by bisection; from there upwards, until the
  // bound alone costs more than the best plan.
  size_t low = 0, high = bounds.size();
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (plan(bounds[middle], nullptr) < inf)
      high = middle;
    else
      low = middle + 1;
  }
  double further = std::max(0, request.microbatches - 1), best = inf;
  std::vector<Stage> chosen;
  const size_t most = mostBounds();
  size_t tried = 0;
  for (size_t b = low;
       b < bounds.size() && tried < most && further * bounds[b] < best;
       ++b, ++tried) {
    std::vector<Stage> stages;
    double sum = plan(bounds[b], &stages);
    if (sum + further * bounds[b] < best) {
      best = sum + further * bounds[b];
      chosen = stages;
    }
  }
  return chosen;
}

} // namespace

Proposal proposeAlpa(const PlanRequest &request, const StepModel &model) {
  expectFreeShape(request, "alpa");
  int devices = request.topology.devices();
  Layers fine = layersOf(request, model, 400);
  size_t layers = devices <= 64 ? 24 : 12;
  std::vector<size_t> starts = cluster(fine, layers, 0.5);
  InterOperator search(request, model, starts);
  Split split;
  for (const Stage &stage : search.solve()) {
    split.starts.push_back(starts[stage.first]);
    split.replicas.push_back(stage.devices);
  }
  if (split.starts.empty())
    return {};
  split.recompute = chooseRecompute(model, split);
  return {{split}, ""};
}

} // namespace pipec::plan
