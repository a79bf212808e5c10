//===- Alpa.cpp - Alpa's planner ------------------------------------------===//
//
// Operators are clustered into layers of about equal work with little traffic
// between them; layers form stages on submeshes (InterOperator.h, section 5 of
// the paper), of replicas or of groups of devices, among which an integer
// program divides the operators (intraop/IntraOp.h, section 4); groups are of
// one device unless the request has more.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/ChooseRecompute.h"
#include "compiler/plan/InterOperator.h"
#include "compiler/plan/intraop/GroupPlacement.h"
#include "compiler/plan/intraop/IntraOp.h"
#include "compiler/plan/planners/Planners.h"
#include "support/Phase.h"

#include <algorithm>
#include <limits>
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

/// Empty where the groups do not fit into the servers.
std::vector<std::vector<int>> leadersOf(const Topology &topology,
                                        const std::vector<MeshStage> &stages) {
  std::vector<StageGroups> groups;
  for (const MeshStage &stage : stages)
    groups.push_back({stage.mesh.replicas(), stage.mesh.degree});
  return placeGroups(topology, groups);
}

/// Nothing where there are no stages or their groups have no place.
std::optional<Split> splitOf(const PlanRequest &request, const StepModel &model,
                             const std::vector<size_t> &starts,
                             const std::vector<MeshStage> &stages,
                             const std::vector<int> &degrees) {
  if (stages.empty())
    return std::nullopt;
  Split split;
  for (const MeshStage &stage : stages) {
    split.starts.push_back(starts[stage.first]);
    split.replicas.push_back(stage.mesh.replicas());
  }
  if (degrees != std::vector{1}) {
    split.devices = leadersOf(request.topology, stages);
    if (split.devices.empty())
      return std::nullopt;
    for (const MeshStage &stage : stages) {
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
  size_t layers = 24;
  std::vector<size_t> starts = cluster(fine, layers, 0.5);
  Proposal proposal;
  const auto propose = [&](const std::vector<int> &degrees) {
    const Phase phase(degrees.size() > 1
                          ? "groups of several sizes"
                          : "groups of " + std::to_string(degrees[0]));
    constexpr size_t kEqual = 3;
    InterOperator search(request, model, starts, degrees);
    std::vector<std::vector<MeshStage>> found = search.solveEqual(kEqual);
    found.insert(found.begin(), {search.solve(false), search.solve(true)});
    for (const std::vector<MeshStage> &stages : found)
      if (std::optional<Split> split =
              splitOf(request, model, starts, stages, degrees))
        proposal.splits.push_back(std::move(*split));
  };
  propose(request.tensorParallel);
  // The objective leaves messages between stages out: groups of one size may be
  // better.
  constexpr int kMostCompared = 64;
  if (request.tensorParallel.size() > 1)
    for (int degree : request.tensorParallel)
      if (degree == 1 || devices <= kMostCompared)
        propose({degree});
  return proposal;
}

} // namespace pipec::plan
