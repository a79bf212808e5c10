//===- Dapple.cpp - DAPPLE's planner --------------------------------------===//
//
// Latency of one synchronous iteration around a pivot stage Q, the one whose
// steady phase decides: forwards up to Q, (M - 1) rounds of Q, then the drain
// and the gradient exchange. Plans grow stage by stage; the rest of the model
// always runs on all devices left. A new stage takes devices from empty servers
// first (fresh), from started servers first (append), or evenly from all
// (scatter); plans that reach the same layer with equally filled servers
// compete (section 4 of the paper).
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/ChooseRecompute.h"
#include "compiler/plan/Collective.h"
#include "compiler/plan/StableOrder.h"
#include "compiler/plan/planners/Planners.h"

#include <algorithm>
#include <limits>
#include <map>

namespace pipec::plan {

namespace {

struct DappleStage {
  size_t first, end; ///< layers
  std::vector<int> devices;
  AllReduceCost exchange; ///< between the devices
  Link incoming;          ///< from the stage before
};

struct Partial {
  std::vector<DappleStage> stages;
  std::vector<int> used; ///< devices taken of each server
  double latency = std::numeric_limits<double>::infinity();
};

enum class Policy { Fresh, Append, Scatter };

class Dapple {
public:
  Dapple(const PlanRequest &request, Layers layers)
      : request(request), layers(std::move(layers)),
        server(request.topology.levels.back().count),
        servers(request.topology.devices() / server) {
    prefix.push_back({});
    for (const StageCost &cost : this->layers.costs) {
      Sum s = prefix.back();
      s.forward += cost.forwardSeconds;
      s.backward += cost.backwardInputSeconds + cost.backwardWeightSeconds;
      s.parameters += cost.parameterBytes;
      prefix.push_back(s);
    }
  }

  /// Complete plans, lowest latency first.
  std::vector<Partial> run();

private:
  struct Sum {
    double forward = 0, backward = 0;
    int64_t parameters = 0;
  };
  std::vector<int> take(const std::vector<int> &used, int count,
                        Policy policy) const;
  double latency(const std::vector<DappleStage> &stages) const;
  std::vector<int> rest(const std::vector<int> &used) const;
  DappleStage placed(std::vector<int> devices, const DappleStage *before) const;
  Partial withRest(const Partial &partial) const;
  Partial complete(const Partial &partial) const;

  const PlanRequest &request;
  const Layers layers;
  const int server, servers;
  std::vector<Sum> prefix;
  struct Slot {
    double forward, backward, exchange;
  };
  mutable std::vector<Slot> slots; ///< of latency(), which is called often
};

std::vector<int> Dapple::take(const std::vector<int> &used, int count,
                              Policy policy) const {
  std::vector<int> fill = used, taken;
  while (static_cast<int>(taken.size()) < count) {
    int best = -1;
    auto better = [&](int a, int b) { // server a before b
      switch (policy) {
      case Policy::Fresh:
        return (used[a] == 0) != (used[b] == 0) ? used[a] == 0
                                                : fill[a] > fill[b];
      case Policy::Append:
        return (used[a] > 0) != (used[b] > 0) ? used[a] > 0 : fill[a] > fill[b];
      case Policy::Scatter:
        return fill[a] < fill[b];
      }
      return false;
    };
    for (int s = 0; s < servers; ++s)
      if (fill[s] < server && (best < 0 || better(s, best)))
        best = s;
    if (best < 0)
      return {};
    taken.push_back(best * server + fill[best]++);
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

std::vector<int> Dapple::rest(const std::vector<int> &used) const {
  std::vector<int> devices;
  for (int s = 0; s < servers; ++s)
    for (int d = used[s]; d < server; ++d)
      devices.push_back(s * server + d);
  return devices;
}

/// L = T_w + T_s + T_e; transfers between stages count as stages of their own.
double Dapple::latency(const std::vector<DappleStage> &stages) const {
  slots.clear();
  for (size_t s = 0; s < stages.size(); ++s) {
    const DappleStage &stage = stages[s];
    const Sum &low = prefix[stage.first], &high = prefix[stage.end];
    double r = static_cast<double>(stage.devices.size());
    if (s > 0) {
      const StageCost &at = layers.costs.at(stage.first);
      const Link &link = stage.incoming;
      double lanes = static_cast<double>(
          std::min(stages[s - 1].devices.size(), stage.devices.size()));
      slots.push_back({transferSeconds(link, at.receiveBytes) / lanes,
                       transferSeconds(link, at.receiveGradientBytes) / lanes,
                       0});
    }
    slots.push_back({(high.forward - low.forward) / r,
                     (high.backward - low.backward) / r,
                     stage.exchange.seconds(high.parameters - low.parameters)});
  }
  double further = request.microbatches - 1;
  auto steady = [&](size_t s) {
    return further * (slots[s].forward + slots[s].backward);
  };
  size_t pivot = slots.size() - 1;
  double between = 0; // of the slots after s and before the pivot
  for (size_t s = slots.size() - 1; s-- > 0;) {
    if (steady(s) > steady(pivot) + between) {
      pivot = s;
      between = 0;
    } else {
      between += slots[s].forward + slots[s].backward;
    }
  }
  double warm = 0, tail = 0;
  for (size_t s = 0; s <= pivot; ++s)
    warm += slots[s].forward;
  for (size_t s = 0; s < slots.size(); ++s) {
    double drain = 0;
    for (size_t a = std::min(s, pivot); a <= std::max(s, pivot); ++a)
      drain += slots[a].backward;
    tail = std::max(tail, slots[s].exchange + (s <= pivot ? drain : -drain));
  }
  return warm + steady(pivot) + tail;
}

/// A stage without its layers: what its devices cost.
DappleStage Dapple::placed(std::vector<int> devices,
                           const DappleStage *before) const {
  DappleStage stage{0, layers.count(), std::move(devices), {}, {}};
  stage.exchange = allReduceCost(request.topology, stage.devices);
  if (before)
    stage.incoming = request.topology.slowestLink(
        {before->devices.front(), before->devices.back(), stage.devices.front(),
         stage.devices.back()});
  return stage;
}

/// A last stage on the devices that are left; its latency is not known.
Partial Dapple::withRest(const Partial &partial) const {
  Partial whole = partial;
  const DappleStage *before =
      partial.stages.empty() ? nullptr : &partial.stages.back();
  DappleStage last = placed(rest(partial.used), before);
  last.first = before ? before->end : 0;
  whole.stages.push_back(std::move(last));
  return whole;
}

Partial Dapple::complete(const Partial &partial) const {
  Partial whole = withRest(partial);
  whole.latency = latency(whole.stages);
  return whole;
}

std::vector<Partial> Dapple::run() {
  size_t n = layers.count();
  using Key =
      std::pair<size_t, std::vector<int>>; // layer, sorted fill of servers
  std::map<Key, Partial> frontier;
  Partial empty;
  empty.used.assign(static_cast<size_t>(servers), 0);
  std::vector<Partial> plans{complete(empty)};
  frontier[{0, empty.used}] = empty;
  for (int depth = 1; depth < 8 && !frontier.empty(); ++depth) {
    std::map<Key, Partial> next;
    for (const auto &[key, partial] : frontier) {
      int left = static_cast<int>(rest(partial.used).size());
      for (int count = 1; count < left; ++count)
        for (Policy policy : {Policy::Fresh, Policy::Append, Policy::Scatter}) {
          Partial grown = partial;
          grown.stages.push_back(placed(
              take(partial.used, count, policy),
              partial.stages.empty() ? nullptr : &partial.stages.back()));
          DappleStage &stage = grown.stages.back();
          stage.first = key.first;
          for (int d : stage.devices)
            ++grown.used[static_cast<size_t>(d / server)];
          Key reached{0, grown.used};
          std::sort(reached.second.begin(), reached.second.end());
          Partial whole = withRest(grown);
          for (size_t end = key.first + 1; end < n; ++end) {
            reached.first = end;
            stage.end = whole.stages[whole.stages.size() - 2].end = end;
            whole.stages.back().first = end;
            grown.latency = latency(whole.stages);
            auto [it, fresh] = next.try_emplace(reached, grown);
            if (!fresh && grown.latency < it->second.latency)
              it->second = grown;
          }
        }
    }
    // The most promising go on; growing all of them is exponential in servers.
    std::vector<std::pair<Key, Partial>> ordered(next.begin(), next.end());
    sortBy(ordered, [](const auto &entry) { return entry.second.latency; });
    ordered.resize(std::min<size_t>(ordered.size(), 200));
    frontier = {ordered.begin(), ordered.end()};
    for (const auto &[key, partial] : ordered)
      plans.push_back(complete(partial));
  }
  sortBy(plans, [](const Partial &p) { return p.latency; });
  return plans;
}

} // namespace

Proposal proposeDapple(const PlanRequest &request, const StepModel &model) {
  expectFreeShape(request, "dapple");
  int devices = request.topology.devices();
  size_t most = devices <= 16 ? 48 : devices <= 64 ? 24 : 12;
  Layers layers = layersOf(request, model, most);
  Dapple search(request, layers);
  Proposal proposal;
  for (const Partial &plan : search.run()) {
    if (proposal.splits.size() == 8)
      break;
    Split split;
    for (const DappleStage &stage : plan.stages) {
      split.starts.push_back(layers.starts[stage.first]);
      split.replicas.push_back(static_cast<int>(stage.devices.size()));
      split.devices.push_back(stage.devices);
    }
    split.recompute = chooseRecompute(model, split);
    proposal.splits.push_back(std::move(split));
  }
  return proposal;
}

} // namespace pipec::plan
