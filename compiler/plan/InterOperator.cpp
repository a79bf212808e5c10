#include "compiler/plan/InterOperator.h"

#include "compiler/plan/Collective.h"
#include "compiler/plan/StableOrder.h"
#include "compiler/plan/intraop/IntraOp.h"
#include "compiler/plan/intraop/ShardedCost.h"
#include "support/Phase.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pipec::plan {

static constexpr double inf = std::numeric_limits<double>::infinity();

/// What bytes are taken to be worth where operators are sharded: nothing, and,
/// if one device cannot hold the model, so much that filling its memory would
/// cost as much as computing a microbatch on it, or many times that.
static std::vector<double> bytePrices(const StepModel &model) {
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
  ways = times;
  bytes.resize(times.size());
  for (int degree : degrees)
    for (double price : degree > 1 ? bytePrices(model) : std::vector{0.0})
      this->price(degree, price);
  dropDominated();
  findRoom();
}

/// No byte more of anything.
static bool isWithin(const ByteRates &a, const ByteRates &b) {
  return a.fixed <= b.fixed && a.perVersion <= b.perVersion &&
         a.perFlight <= b.perFlight && a.again <= b.again && a.undo <= b.undo &&
         a.perReceived <= b.perReceived &&
         a.perReceivedBack <= b.perReceivedBack && a.perHalf <= b.perHalf &&
         a.perSent <= b.perSent && a.gradients <= b.gradients;
}

/// Ways to use equally many devices of which another is faster and smaller; of
/// equal ones the first stays. Replicas count, too: with more of them a device
/// keeps fewer microbatches.
void InterOperator::dropDominated() {
  const auto isBetter = [&](size_t i, size_t j, size_t a, size_t b) {
    return meshes[a].devices == meshes[b].devices &&
           meshes[a].replicas() >= meshes[b].replicas() &&
           times[at(i, j, a)] <= times[at(i, j, b)] &&
           ways[at(i, j, a)] <= ways[at(i, j, b)] &&
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
  Phase pricing("pricing stages from layer", static_cast<int64_t>(n));
  for (size_t i = 0; i < n; ++i) {
    pricing.next();
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
        const double shared = reduce.seconds(cost.parameterBytes) /
                              std::max(1, request.microbatches);
        ways[at(i, j, m)] = cost.seconds() + shared;
        times[at(i, j, m)] = cost.seconds() / meshes[m].replicas() + shared;
        bytes[at(i, j, m)] = model.byteRates(cost);
      }
    }
  }
}

/// Whether a stage of layers [i, j) fits that is the first of `depth` stages on
/// `devices`. The stages behind it, whose replicas decide what it has in
/// flight, are taken to be of groups as large as its own; the step model tells
/// the rest.
bool InterOperator::fits(size_t i, size_t j, size_t m, size_t depth,
                         int devices) const {
  const Mesh &mesh = meshes[m];
  const int behind = (devices - mesh.devices) / mesh.degree;
  const Keeps keeps =
      keepsAt(request, {0, static_cast<int>(depth), mesh.replicas(),
                        mesh.replicas() + behind, request.microbatches});
  const ByteRates &rates = bytes[at(i, j, m)];
  return model.recomputes(rates, keeps, model.limit()).has_value();
}

/// On how many devices it may be the first: with more there is more in flight.
void InterOperator::findRoom() {
  const int all = request.topology.devices();
  depth = std::min({n, static_cast<size_t>(all), size_t(32)});
  room.assign((depth + 1) * times.size(), 0);
  for (size_t s = 1; s <= depth; ++s)
    for (size_t i = 0; i < n; ++i)
      for (size_t j = i + 1; j <= n; ++j)
        for (size_t m = 0; m < meshes.size(); ++m) {
          if (times[at(i, j, m)] == inf || !fits(i, j, m, s, meshes[m].devices))
            continue;
          int low = meshes[m].devices, high = all;
          while (low < high) {
            const int middle = (low + high + 1) / 2;
            if (fits(i, j, m, s, middle))
              low = middle;
            else
              high = middle - 1;
          }
          room[s * times.size() + at(i, j, m)] = low;
        }
}

/// F(s, k, d): least sum of stage times of layers k.. in s stages on d devices,
/// no stage above `bound`, on all meshes or only one. The stage count decides
/// what a stage keeps in flight.
double InterOperator::plan(double bound, bool turns,
                           std::vector<MeshStage> *stages,
                           std::optional<size_t> only) {
  const size_t width = static_cast<size_t>(request.topology.devices()) + 1;
  table.assign((depth + 1) * (n + 1) * width, {});
  const auto row = [&](size_t s, size_t k) {
    return table.data() + (s * (n + 1) + k) * width;
  };
  row(0, n)[0] = {0, 0, 0};
  double best = inf;
  size_t bestDepth = 0;
  for (size_t s = 1; s <= depth; ++s) {
    for (size_t k = n; k-- > 0;)
      for (size_t end = k + 1; end <= n; ++end)
        for (size_t m = only.value_or(0);
             m < (only ? *only + 1 : meshes.size()); ++m) {
          if (times[at(k, end, m)] > bound)
            continue;
          const double way = (turns ? ways : times)[at(k, end, m)];
          const auto size = static_cast<size_t>(meshes[m].devices),
                     most = static_cast<size_t>(
                         room[s * times.size() + at(k, end, m)]);
          const Entry *rest = row(s - 1, end);
          Entry *here = row(s, k);
          for (size_t d = size; d <= most; ++d)
            if (rest[d - size].sum + way < here[d].sum)
              here[d] = {rest[d - size].sum + way, static_cast<uint32_t>(end),
                         static_cast<uint32_t>(m)};
        }
    if (row(s, 0)[width - 1].sum < best)
      best = row(s, 0)[width - 1].sum, bestDepth = s;
  }
  if (stages && best < inf) {
    stages->clear();
    size_t k = 0, d = width - 1;
    for (size_t s = bestDepth; s > 0; --s) {
      const Entry &e = row(s, k)[d];
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

std::vector<MeshStage> InterOperator::solve(bool turns) {
  std::vector<double> bounds;
  for (double t : times)
    if (t < inf)
      bounds.push_back(t);
  if (bounds.empty())
    return {};
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
    if (plan(bounds[middle], turns, nullptr) < inf)
      high = middle;
    else
      low = middle + 1;
  }
  double further = std::max(0, request.microbatches - 1), best = inf;
  std::vector<MeshStage> chosen;
  // Where not all are tried, those that are lie further and further apart, the
  // last at kWidest times the first.
  constexpr double kWidest = 8;
  const size_t most = mostBounds();
  const double apart = bounds.size() - low > most
                           ? std::pow(kWidest, 1 / static_cast<double>(most))
                           : 1;
  double next = 0;
  Phase trying("stage times tried", static_cast<int64_t>(bounds.size() - low));
  for (size_t b = low; b < bounds.size() && further * bounds[b] < best; ++b) {
    trying.next();
    if (bounds[b] < next)
      continue;
    next = apart * bounds[b];
    std::vector<MeshStage> stages;
    const double sum = plan(bounds[b], turns, &stages);
    if (sum + further * bounds[b] < best) {
      best = sum + further * bounds[b];
      chosen = stages;
    }
  }
  return chosen;
}

std::vector<std::vector<MeshStage>> InterOperator::solveEqual(size_t most) {
  struct Found {
    double seconds;
    std::vector<MeshStage> stages;
  };
  std::vector<Found> all;
  const int devices = request.topology.devices();
  for (size_t m = 0; m < meshes.size(); ++m) {
    if (devices % meshes[m].devices != 0 ||
        static_cast<size_t>(devices / meshes[m].devices) > depth)
      continue;
    std::vector<double> bounds;
    for (size_t i = 0; i < n; ++i)
      for (size_t j = i + 1; j <= n; ++j)
        if (times[at(i, j, m)] < inf)
          bounds.push_back(times[at(i, j, m)]);
    std::sort(bounds.begin(), bounds.end());
    const auto least =
        std::partition_point(bounds.begin(), bounds.end(), [&](double bound) {
          return plan(bound, true, nullptr, m) == inf;
        });
    if (least == bounds.end())
      continue;
    std::vector<MeshStage> stages;
    const double sum = plan(*least, true, &stages, m);
    all.push_back({sum + std::max(0, request.microbatches - 1) * *least,
                   std::move(stages)});
  }
  sortBy(all, [](const Found &found) { return found.seconds; });
  std::vector<std::vector<MeshStage>> best;
  for (Found &found : all)
    if (best.size() < most)
      best.push_back(std::move(found.stages));
  return best;
}

} // namespace pipec::plan
