#include "compiler/plan/StrategyFacts.h"

#include "compiler/plan/EqualOrders.h"
#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Pipelines.h"
#include "compiler/schedule/SpareSlots.h"
#include "support/Failure.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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

/// What an order keeps, per stage. All copies of a strategy's facts share it,
/// whatever thread they are in.
struct Kept {
  std::vector<int> inFlight, betweenHalves;

  explicit Kept(const schedule::Schedule &order) {
    for (const auto &actions : order.order)
      tasks += actions.size();
    const auto microbatches = [&](int pieces) {
      return (pieces + order.slices - 1) / order.slices;
    };
    for (int s = 0; s < order.stages; ++s) {
      int flying = 0, between = 0;
      for (const int device : order.placement[s]) {
        flying = std::max(flying, schedule::inFlight(order, device, s));
        between = std::max(between, schedule::betweenHalves(order, device, s));
      }
      inFlight.push_back(microbatches(flying));
      betweenHalves.push_back(microbatches(between));
    }
  }

  /// `order` gives the order again.
  int spareSlots(const schedule::Sends &sends,
                 const std::function<const schedule::Schedule &()> &order) {
    const std::lock_guard guard(mutex);
    if (!last || last->first != sends)
      last.emplace(sends, findSpareSlots(sends, order));
    return last->second;
  }

private:
  int findSpareSlots(const schedule::Sends &sends,
                     const std::function<const schedule::Schedule &()> &order) {
    constexpr size_t kMost = 256; // a search mostly moves cuts back and forth
    constexpr size_t kManyTasks = 1 << 20, kFew = 4;
    if (const auto it = spare.find(sends); it != spare.end())
      return it->second;
    // Executing orders of a million tasks takes a second: as many as any of the
    // first few patterns needs.
    if (tasks > kManyTasks && spare.size() == kFew)
      return std::max_element(spare.begin(), spare.end(),
                              [](const auto &a, const auto &b) {
                                return a.second < b.second;
                              })
          ->second;
    if (spare.size() == kMost)
      spare.clear();
    return spare[sends] = schedule::spareSlots(order(), sends);
  }

  size_t tasks = 0;
  std::mutex mutex;                     ///< of all below
  std::map<schedule::Sends, int> spare; ///< what was asked for
  std::optional<std::pair<schedule::Sends, int>> last;
};

/// What a schedule's own order keeps; generated once for each size.
class OrderFacts {
public:
  OrderFacts(std::string schedule, int chunks, int slices)
      : schedule(std::move(schedule)), chunks(chunks), slices(slices) {}
  int ofStage(const StagePosition &p, std::vector<int> Kept::*counts) {
    const std::lock_guard guard(mutex);
    return (keptAt(p).*counts).at(static_cast<size_t>(p.stage));
  }

  int spareAt(const StagePosition &p, const schedule::Sends &sends) {
    const std::lock_guard guard(mutex);
    return keptAt(p).spareSlots(
        sends, [&]() -> const schedule::Schedule & { return orderAt(p); });
  }

private:
  Kept &keptAt(const StagePosition &p) {
    std::optional<Kept> &known = bySize[{p.stages, share(p)}];
    if (!known)
      known.emplace(orderAt(p));
    return *known;
  }

  /// Until another one is asked for.
  const schedule::Schedule &orderAt(const StagePosition &p) {
    const std::pair<int, int> size{p.stages, share(p)};
    if (last && last->first == size)
      return last->second;
    schedule::ScheduleRequest request;
    request.devices = p.stages / chunks;
    request.chunks = chunks > 1 ? chunks : 0;
    request.microbatches = share(p);
    request.slices = slices;
    return last.emplace(size, equalOrder(schedule, request)).second;
  }

  std::mutex mutex;
  std::string schedule;
  int chunks, slices;
  std::map<std::pair<int, int>, std::optional<Kept>> bySize;
  std::optional<std::pair<std::pair<int, int>, schedule::Schedule>> last;
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
  facts.severalPipelines = schedule::mayRepeat(row);
  facts.searches = row.readsCosts;
  auto order =
      std::make_shared<OrderFacts>(row.name, facts.chunks, facts.slices);
  facts.inFlight = [order](const StagePosition &p) {
    return order->ofStage(p, &Kept::inFlight);
  };
  facts.betweenHalves = [order](const StagePosition &p) {
    return order->ofStage(p, &Kept::betweenHalves);
  };
  // What keys and values of a sequence's pieces need is not known.
  if (row.synchronous && row.extra != schedule::Extra::Slices)
    facts.spareSlots = [order](const StagePosition &p,
                               const schedule::Sends &sends) {
      return order->spareAt(p, sends);
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
  const auto kept = std::make_shared<Kept>(*order);
  facts.inFlight = [kept](const StagePosition &p) {
    return kept->inFlight.at(static_cast<size_t>(p.stage));
  };
  facts.betweenHalves = [kept](const StagePosition &p) {
    return kept->betweenHalves.at(static_cast<size_t>(p.stage));
  };
  if (order->slices == 1)
    facts.spareSlots = [kept, order](const StagePosition &,
                                     const schedule::Sends &sends) {
      return kept->spareSlots(
          sends, [&]() -> const schedule::Schedule & { return *order; });
    };
  facts.versions = [](const StagePosition &) { return 1; };
  return facts;
}

} // namespace pipec::plan
