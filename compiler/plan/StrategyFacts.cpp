#include "compiler/plan/StrategyFacts.h"

#include "compiler/schedule/Generator.h"
#include "support/Failure.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

namespace pipec::plan {

namespace {

/// Microbatches of a step that one replica handles.
int share(const StagePosition &p) {
  return (p.microbatches + p.replicas - 1) / p.replicas;
}

/// Forwards that precede a replica's first backward, that one included:
/// ceil(devices from here on / replicas) (PipeDream section 3.2).
int warm(const StagePosition &p) {
  return (p.devicesFromHere + p.replicas - 1) / p.replicas;
}

const std::vector<StrategyFacts> &rows() {
  static const std::vector<StrategyFacts> all = [] {
    std::vector<StrategyFacts> facts;
#define STRATEGY(NAME, SCHEDULE, SHAPE, SYNCHRONOUS, INFLIGHT, VERSIONS,       \
                 REPLICATES)                                                   \
  {                                                                            \
    StrategyFacts f;                                                           \
    f.name = NAME;                                                             \
    f.schedule = SCHEDULE;                                                     \
    f.shape = Shape::SHAPE;                                                    \
    f.synchronous = SYNCHRONOUS;                                               \
    f.inFlight = [](const StagePosition &p) -> int {                           \
      return (void)p, INFLIGHT;                                                \
    };                                                                         \
    f.versions = [](const StagePosition &p) -> int {                           \
      return (void)p, VERSIONS;                                                \
    };                                                                         \
    f.replicates = REPLICATES;                                                 \
    facts.push_back(f);                                                        \
  }
#include "compiler/plan/StrategyFacts.def"
    return facts;
  }();
  return all;
}

/// What a schedule's own order keeps in flight, per stage; generated once for
/// each size.
class OrderFacts {
public:
  OrderFacts(std::string schedule, int chunks, int slices)
      : schedule(std::move(schedule)), chunks(chunks), slices(slices) {}
  int inFlight(const StagePosition &p) {
    auto &known = bySize[{p.stages, share(p)}];
    if (known.empty()) {
      schedule::ScheduleRequest request;
      request.devices = p.stages / chunks;
      request.chunks = chunks > 1 ? chunks : 0;
      request.microbatches = share(p);
      request.slices = slices;
      auto order = schedule::generate(schedule, request);
      for (const auto &copies : schedule::inFlight(order)) {
        int pieces = *std::max_element(copies.begin(), copies.end());
        known.push_back((pieces + order.slices - 1) / order.slices);
      }
    }
    return known.at(static_cast<size_t>(p.stage));
  }

private:
  std::string schedule;
  int chunks, slices;
  std::map<std::pair<int, int>, std::vector<int>> bySize;
};

StrategyFacts factsOfSchedule(const schedule::ScheduleRow &row, int chunks,
                              int slices) {
  StrategyFacts facts;
  facts.name = facts.schedule = row.name;
  facts.chunks = row.chunks == schedule::ChunkRule::One ? 1
                 : row.chunks == schedule::ChunkRule::Free && chunks > 0
                     ? chunks
                     : 2;
  facts.copies = row.layout == schedule::Layout::Bidirectional ? 2 : 1;
  facts.slices = row.extra == schedule::Extra::Slices ? slices : 0;
  facts.splitBackward = row.splitBackward;
  facts.synchronous = row.synchronous;
  facts.replicates = false;
  auto order =
      std::make_shared<OrderFacts>(row.name, facts.chunks, facts.slices);
  facts.inFlight = [order](const StagePosition &p) {
    return order->inFlight(p);
  };
  facts.versions = [](const StagePosition &) { return 1; };
  return facts;
}

} // namespace

StrategyFacts strategyFacts(const std::string &name, int chunks, int slices) {
  std::string names;
  for (const StrategyFacts &facts : rows()) {
    if (facts.name == name)
      return facts;
    names += (names.empty() ? "" : ", ") + facts.name;
  }
  if (const schedule::ScheduleRow *row = schedule::findSchedule(name))
    return factsOfSchedule(*row, chunks, slices);
  for (const schedule::ScheduleRow &row : schedule::schedules())
    if (names.find(row.name) == std::string::npos)
      names += std::string(", ") + row.name;
  throw Failure(Exit::Usage, "the planner knows no strategy '" + name +
                                 "'; there are: " + names);
}

StrategyFacts factsOfOrder(schedule::Schedule fixed) {
  auto order = std::make_shared<const schedule::Schedule>(std::move(fixed));
  StrategyFacts facts;
  facts.name = facts.schedule = order->name;
  facts.order = order;
  for (int d = 0; d < order->devices(); ++d) {
    facts.chunks =
        std::max(facts.chunks, static_cast<int>(order->stagesOf(d).size()));
    for (const schedule::Action &action : order->order[d])
      facts.splitBackward |= action.kind == schedule::Kind::W;
  }
  facts.replicates = false;
  auto held = std::make_shared<std::vector<std::vector<int>>>(
      schedule::inFlight(*order));
  facts.inFlight = [held](const StagePosition &p) {
    const auto &copies = held->at(static_cast<size_t>(p.stage));
    return *std::max_element(copies.begin(), copies.end());
  };
  facts.versions = [](const StagePosition &) { return 1; };
  return facts;
}

} // namespace pipec::plan
