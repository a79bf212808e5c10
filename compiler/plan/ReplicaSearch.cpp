#include "compiler/plan/ReplicaSearch.h"

#include "compiler/plan/Collective.h"
#include "compiler/plan/StableOrder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

namespace pipec::plan {

namespace {

/// A suffix of the pipeline: its surrogate costs and how it goes on.
struct Suffix {
  double fill = 0, pace = 0, tail = 0, objective = 0;
  int stages = 0, replicas = 0;
  uint32_t nextStart = 0, nextDevices = 0, nextLabel = 0;
};

class Search {
public:
  Search(const PlanRequest &request, const StepModel &model);
  std::vector<Shape2D> run();

private:
  void extend(size_t start);
  /// What a stage adds to any suffix that comes after it.
  struct Step {
    int replicas = 0, window = 0;
    double load = 0, after = 0, hop = 0, back = 0;
  };
  std::optional<Step> stepOf(const StageCost &cost, const ByteRates &bytes,
                             int replicas, int devicesAfter, bool first) const;
  void price(Suffix &s, const Step &step) const;
  double objective(const Suffix &s) const;
  void insert(std::vector<Suffix> &labels, const Suffix &s) const;
  /// What a stage's replicas and the devices after it fix.
  struct Place {
    Keeps keeps{0, 0}; ///< inFlight 0: not known yet
    AllReduceCost reduce;
    Link incoming;
  };
  const Place &placeOf(int replicas, int devicesAfter) const;
  std::vector<Suffix> &at(size_t start, int devices) {
    return table[start * (static_cast<size_t>(devices_) + 1) +
                 static_cast<size_t>(devices)];
  }

  const PlanRequest &request;
  const StepModel &model;
  const int devices_;
  std::vector<size_t> starts;
  std::vector<int> choices; ///< replica counts to try, ascending
  size_t labelsKept;
  std::vector<std::vector<Suffix>> table;
  mutable std::vector<Place> places; ///< [replicas][devices after]
};

std::vector<int> replicaChoices(int devices, int server) {
  std::vector<int> choices;
  for (int r = 1; r <= devices; ++r) {
    bool small = devices <= 16 || r <= 2;
    bool power = (r & (r - 1)) == 0;
    bool servers = r % server == 0 &&
                   (r / server <= 3 || ((r / server) & (r / server - 1)) == 0);
    bool rest = r == devices || devices - r == 1 || devices - r == server;
    if (small || power || servers || rest)
      choices.push_back(r);
  }
  return choices;
}

Search::Search(const PlanRequest &request, const StepModel &model)
    : request(request), model(model), devices_(request.topology.devices()) {
  bool large = devices_ > 16;
  starts = coarseStarts(request.graph, legalStarts(request.graph),
                        devices_ > 256                          ? 32
                        : request.effort < PlanRequest::kGlance ? 48
                        : large                                 ? 64
                                                                : 128);
  choices = replicaChoices(devices_, request.topology.levels.back().count);
  labelsKept = large ? 2 : 6;
  size_t width = static_cast<size_t>(devices_) + 1;
  table.resize((starts.size() + 1) * width);
  places.resize(width * width);
}

/// Neighbours stage by stage: the suffix occupies the cluster's last devices.
/// Facts that need a stage's number from the front see the second of three.
const Search::Place &Search::placeOf(int replicas, int devicesAfter) const {
  Place &place = places[static_cast<size_t>(replicas) *
                            (static_cast<size_t>(devices_) + 1) +
                        static_cast<size_t>(devicesAfter)];
  if (place.keeps.inFlight != 0)
    return place;
  int firstDevice = devices_ - devicesAfter - replicas;
  const int before = firstDevice > 0, behind = devicesAfter > 0;
  place.keeps =
      keepsAt(request, {before, before + 1 + behind, replicas,
                        devicesAfter + replicas, request.microbatches});
  std::vector<int> group(static_cast<size_t>(replicas));
  std::iota(group.begin(), group.end(), firstDevice);
  place.reduce = allReduceCost(request.topology, group);
  if (firstDevice > 0)
    place.incoming = boundaryLink(request.topology, {firstDevice - 1}, group);
  return place;
}

/// Nothing where the stage does not fit.
std::optional<Search::Step> Search::stepOf(const StageCost &cost,
                                           const ByteRates &bytes, int replicas,
                                           int devicesAfter, bool first) const {
  const Place &place = placeOf(replicas, devicesAfter);
  const Keeps &keeps = place.keeps;
  const auto again = model.recomputes(bytes, keeps, model.limit());
  if (!again)
    return std::nullopt;
  Step step;
  step.replicas = replicas;
  step.window = keeps.inFlight * replicas;
  step.after = place.reduce.seconds(cost.parameterBytes) +
               model.updateSeconds(cost.parameterBytes);
  step.load = cost.seconds() + (*again ? cost.forwardSeconds : 0);
  if (!request.strategy.synchronous)
    step.load += step.after;
  if (!first) {
    step.hop = transferSeconds(place.incoming, cost.receiveBytes);
    step.back = transferSeconds(place.incoming, cost.receiveGradientBytes);
  }
  return step;
}

void Search::price(Suffix &s, const Step &step) const {
  const StrategyFacts &facts = request.strategy;
  if (facts.synchronous)
    s.tail = std::max(s.tail, step.after);
  s.fill += step.load;
  s.pace = std::max(s.pace, step.load / step.replicas);
  if (!facts.synchronous || step.window < request.microbatches)
    if (facts.shape == Shape::OneFOneB)
      s.pace = std::max(s.pace, s.fill / step.window);
  s.pace = std::max(s.pace, std::max(step.hop, step.back) / step.replicas);
  s.fill += step.hop + step.back;
  s.replicas = step.replicas;
  ++s.stages;
  s.objective = objective(s);
}

double Search::objective(const Suffix &s) const {
  if (!request.strategy.synchronous)
    return s.pace;
  return s.fill + (request.microbatches - 1) * s.pace + s.tail;
}

void Search::insert(std::vector<Suffix> &labels, const Suffix &s) const {
  auto dominates = [](const Suffix &a, const Suffix &b) {
    return a.fill <= b.fill && a.pace <= b.pace && a.tail <= b.tail;
  };
  // What is worse than all there is room for dominates none of them.
  if (labels.size() == labelsKept &&
      std::all_of(labels.begin(), labels.end(), [&](const Suffix &other) {
        return other.objective < s.objective;
      }))
    return;
  for (const Suffix &other : labels)
    if (dominates(other, s))
      return;
  std::erase_if(labels,
                [&](const Suffix &other) { return dominates(s, other); });
  labels.push_back(s);
  const auto less = [](const Suffix &a, const Suffix &b) {
    return a.objective < b.objective;
  };
  if (labels.size() > labelsKept)
    labels.erase(std::max_element(labels.begin(), labels.end(), less));
}

void Search::extend(size_t i) {
  size_t n = starts.size();
  IntervalCosts::Sweep sweep(model.intervals(), starts[i]);
  for (size_t end = i + 1; end <= n; ++end) {
    size_t bound = end < n ? starts[end] : model.intervals().nodes();
    const StageCost &cost = sweep.growTo(bound - 1);
    ByteRates bytes = model.byteRates(cost);
    for (int after = 0; after < devices_; ++after) {
      const auto &rest = at(end, after);
      if (rest.empty() || (end == n) != (after == 0))
        continue;
      for (int r : choices) {
        int used = after + r;
        if (used > devices_ || (i == 0) != (used == devices_))
          continue;
        if (request.strategy.synchronous && r > request.microbatches)
          continue;
        const std::optional<Step> step = stepOf(cost, bytes, r, after, i == 0);
        if (!step)
          continue;
        for (size_t l = 0; l < rest.size(); ++l) {
          if (request.stages && rest[l].stages + 1 > *request.stages)
            continue;
          Suffix s = rest[l];
          price(s, *step);
          s.nextStart = static_cast<uint32_t>(end);
          s.nextDevices = static_cast<uint32_t>(after);
          s.nextLabel = static_cast<uint32_t>(l);
          insert(at(i, used), s);
        }
      }
    }
  }
}

std::vector<Shape2D> Search::run() {
  size_t n = starts.size();
  at(n, 0).push_back({});
  for (size_t i = n; i-- > 0;)
    extend(i);
  std::vector<Suffix> complete = at(0, devices_);
  sortBy(complete, [](const Suffix &s) { return s.objective; });
  std::vector<Shape2D> shapes;
  for (Suffix s : complete) {
    if (request.stages && s.stages != *request.stages)
      continue;
    Shape2D shape;
    size_t start = 0;
    while (s.stages > 0) {
      shape.replicas.push_back(s.replicas);
      start = s.nextStart;
      s = at(start, static_cast<int>(s.nextDevices))[s.nextLabel];
    }
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end())
      shapes.push_back(shape);
  }
  return shapes;
}

} // namespace

std::vector<Shape2D> unequalShapes(const PlanRequest &request,
                                   const StepModel &model) {
  return Search(request, model).run();
}

} // namespace pipec::plan
