//===- Alpa.cpp - Alpa's planner ------------------------------------------===//
//
// Operators are clustered into layers of about equal work with little traffic
// between them; layers form stages on submeshes of one server's power-of-two
// parts or of whole servers. For a bound on the slowest stage a dynamic program
// minimizes the sum of the stages; sum + (B - 1) * slowest is the objective
// (section 5 of the paper). A submesh of n devices is n / t replicas, which
// take turns at the microbatches, of t devices, among which the integer program
// of intraop/IntraOp.h divides the operators (section 4); t is 1 unless the
// request has more.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/Collective.h"
#include "compiler/plan/Refine.h"
#include "compiler/plan/intraop/IntraOp.h"
#include "compiler/plan/intraop/ShardedCost.h"
#include "compiler/plan/planners/Planners.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

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

/// Devices of a stage, and what a byte that they keep is taken to be worth.
struct Mesh {
  int devices = 1, degree = 1;
  double secondsPerByte = 0;
  int replicas() const { return devices / degree; }
};

struct Stage {
  size_t first = 0, end = 0;
  Mesh mesh;
};

/// All stages on submeshes with their times, then the dynamic program per
/// bound.
class InterOperator {
public:
  InterOperator(const PlanRequest &request, const StepModel &model,
                std::vector<size_t> starts, const std::vector<int> &degrees);
  /// Stages of the best plan, first to last; empty when none fits.
  std::vector<Stage> solve();

private:
  size_t at(size_t i, size_t j, size_t m) const {
    return (i * (n + 1) + j) * meshes.size() + m;
  }
  size_t lastNode(size_t end) const {
    return (end < n ? starts[end] : model.intervals().nodes()) - 1;
  }
  void addMeshes(const std::vector<int> &degrees);
  void price(int degree, double secondsPerByte);
  void dropDominated();
  double plan(double bound, std::vector<Stage> *stages) const;
  size_t mostBounds() const;

  const PlanRequest &request;
  const StepModel &model;
  std::vector<size_t> starts;
  size_t n;
  std::vector<Mesh> meshes;
  std::vector<double> times; ///< by layers and mesh, as `bytes`
  std::vector<ByteRates> bytes;
};

/// What bytes are taken to be worth where operators are sharded: nothing, and,
/// if one device cannot hold the model, so much that filling its memory would
/// cost as much as computing a microbatch on it, or many times that.
std::vector<double> bytePrices(const StepModel &model) {
  const StageCost &all =
      model.intervals().cost(0, model.intervals().nodes() - 1);
  const int64_t most = model.byteRates(all).total(
      keepsAt(model.request(), {0, 1, 1, 1, 1}), false);
  if (most <= model.limit())
    return {0};
  const double one = all.seconds() / static_cast<double>(model.limit());
  return {0, one, 16 * one};
}

void InterOperator::addMeshes(const std::vector<int> &degrees) {
  const int server = request.topology.levels.back().count,
            all = request.topology.devices();
  std::vector<int> sizes;
  for (int m = 1; m < server; m *= 2)
    sizes.push_back(m);
  for (int servers = 1; servers * server <= all; ++servers)
    sizes.push_back(servers * server);
  const std::vector<double> prices = bytePrices(model);
  for (int size : sizes)
    for (int degree : degrees)
      for (double price : prices)
        if (size % degree == 0 && (degree > 1 || price == 0))
          meshes.push_back({size, degree, price});
}

InterOperator::InterOperator(const PlanRequest &request, const StepModel &model,
                             std::vector<size_t> from,
                             const std::vector<int> &degrees)
    : request(request), model(model), starts(std::move(from)),
      n(starts.size()) {
  addMeshes(degrees);
  times.assign((n + 1) * (n + 1) * meshes.size(), inf);
  bytes.resize(times.size());
  for (int degree : degrees)
    for (double price : degree > 1 ? bytePrices(model) : std::vector{0.0})
      this->price(degree, price);
  dropDominated();
}

/// No byte more of anything.
bool isWithin(const ByteRates &a, const ByteRates &b) {
  return a.fixed <= b.fixed && a.perVersion <= b.perVersion &&
         a.perFlight <= b.perFlight && a.again <= b.again && a.undo <= b.undo &&
         a.perReceived <= b.perReceived &&
         a.perReceivedBack <= b.perReceivedBack && a.perHalf <= b.perHalf &&
         a.perSent <= b.perSent;
}

/// Ways to use equally many devices of which another is faster and smaller; of
/// equal ones the first stays. Replicas count, too: with more of them a device
/// keeps fewer microbatches.
void InterOperator::dropDominated() {
  const auto isBetter = [&](size_t i, size_t j, size_t a, size_t b) {
    return meshes[a].devices == meshes[b].devices &&
           meshes[a].replicas() >= meshes[b].replicas() &&
           times[at(i, j, a)] <= times[at(i, j, b)] &&
           isWithin(bytes[at(i, j, a)], bytes[at(i, j, b)]);
  };
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i + 1; j <= n; ++j)
      for (size_t b = 0; b < meshes.size(); ++b)
        for (size_t a = 0; a < meshes.size() && times[at(i, j, b)] < inf; ++a)
          if (a != b && times[at(i, j, a)] < inf && isBetter(i, j, a, b) &&
              (a < b || !isBetter(i, j, b, a)))
            times[at(i, j, b)] = inf;
}

/// Times and bytes of every stage on meshes of such groups.
void InterOperator::price(int degree, double secondsPerByte) {
  std::vector<std::pair<size_t, AllReduceCost>> wanted;
  for (size_t m = 0; m < meshes.size(); ++m) {
    if (meshes[m].degree != degree ||
        meshes[m].secondsPerByte != secondsPerByte)
      continue;
    std::vector<int> leaders;
    for (int q = 0; q < meshes[m].replicas(); ++q)
      leaders.push_back(q * degree);
    wanted.push_back({m, allReduceCost(request.topology, leaders)});
  }
  if (wanted.empty())
    return;
  ShardingGroup group = groupOf(request, degree, 1);
  group.secondsPerByte = secondsPerByte;
  std::optional<IntraOp> program;
  if (degree > 1)
    program.emplace(request.graph, group);
  for (size_t i = 0; i < n; ++i) {
    IntervalCosts::Sweep sweep(model.intervals(), starts[i]);
    std::optional<IntraOp::Sweep> choices;
    if (program)
      choices.emplace(*program, starts[i]);
    for (size_t j = i + 1; j <= n; ++j) {
      StageCost cost = sweep.growTo(lastNode(j));
      if (choices) {
        choices->growTo(lastNode(j));
        cost = shardedCost(request.graph, cost, starts[i], lastNode(j),
                           choices->best(), group);
      }
      for (const auto &[m, reduce] : wanted) {
        times[at(i, j, m)] = cost.seconds() / meshes[m].replicas() +
                             reduce.seconds(cost.parameterBytes) /
                                 std::max(1, request.microbatches);
        bytes[at(i, j, m)] = model.byteRates(cost);
      }
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
          double t = times[at(k, end, m)];
          if (t > bound)
            continue;
          const size_t size = static_cast<size_t>(meshes[m].devices);
          for (size_t d = size; d < width; ++d) {
            const Entry &rest = table[s - 1][end * width + d - size];
            Entry &here = table[s][k * width + d];
            if (rest.sum + t >= here.sum)
              continue;
            Keeps keeps =
                keepsAt(request, {0, static_cast<int>(s), meshes[m].replicas(),
                                  static_cast<int>(d), request.microbatches});
            const ByteRates &rates = bytes[at(k, end, m)];
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
      d -= static_cast<size_t>(meshes[e.mesh].devices);
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

/// The groups' devices: neighbours, one stage's after the other's.
std::vector<std::vector<int>> leadersOf(const std::vector<Stage> &stages) {
  std::vector<std::vector<int>> leaders;
  int next = 0;
  for (const Stage &stage : stages) {
    leaders.emplace_back();
    for (int q = 0; q < stage.mesh.replicas(); ++q, next += stage.mesh.degree)
      leaders.back().push_back(next);
  }
  return leaders;
}

/// The best stages of groups of these sizes; no split where none fits.
std::optional<Split> splitOf(const PlanRequest &request, const StepModel &model,
                             const std::vector<size_t> &starts,
                             const std::vector<int> &degrees) {
  InterOperator search(request, model, starts, degrees);
  const std::vector<Stage> stages = search.solve();
  if (stages.empty())
    return std::nullopt;
  Split split;
  for (const Stage &stage : stages) {
    split.starts.push_back(starts[stage.first]);
    split.replicas.push_back(stage.mesh.replicas());
  }
  if (degrees != std::vector{1}) {
    split.devices = leadersOf(stages);
    for (const Stage &stage : stages) {
      const Mesh &mesh = stage.mesh;
      split.shardings.emplace_back();
      if (mesh.degree == 1)
        continue;
      ShardingGroup group = groupOf(request, mesh.degree, mesh.replicas());
      group.secondsPerByte = mesh.secondsPerByte;
      const IntraOp program(request.graph, group);
      IntraOp::Sweep sweep(program, starts[stage.first]);
      sweep.growTo((stage.end < starts.size() ? starts[stage.end]
                                              : model.intervals().nodes()) -
                   1);
      split.shardings.back() = sweep.best();
    }
  }
  split.recompute = chooseRecompute(model, split);
  return split;
}

} // namespace

Proposal proposeAlpa(const PlanRequest &request, const StepModel &model) {
  expectFreeShape(request, "alpa");
  int devices = request.topology.devices();
  Layers fine = layersOf(request, model, 400);
  size_t layers = devices <= 64 ? 24 : 12;
  std::vector<size_t> starts = cluster(fine, layers, 0.5);
  Proposal proposal;
  if (auto split = splitOf(request, model, starts, request.tensorParallel))
    proposal.splits.push_back(*split);
  // The objective leaves messages between stages and the filling of replicas
  // out: groups of one size may be better.
  constexpr int kMostCompared = 64;
  if (request.tensorParallel.size() > 1)
    for (int degree : request.tensorParallel)
      if (degree == 1 || devices <= kMostCompared)
        if (auto split = splitOf(request, model, starts, {degree}))
          proposal.splits.push_back(*split);
  return proposal;
}

} // namespace pipec::plan
