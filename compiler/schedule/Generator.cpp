//===- Generator.cpp - the table of schedules and its front door ----------===//
#include "compiler/schedule/Generator.h"

#include "compiler/schedule/Simulator.h"
#include "compiler/schedule/Verifier.h"
#include "compiler/schedule/generators/Build.h"
#include "support/Failure.h"
#include "support/UnknownName.h"

#include <algorithm>
#include <numeric>

namespace pipec::schedule {

static constexpr ScheduleRow kRows[] = {
#define PIPEC_SCHEDULE(function, name, layout, chunks, synchronous, split,     \
                       replicates, extra, readsCosts, summary, source)         \
  {name,        summary, source,     Layout::layout, ChunkRule::chunks,        \
   synchronous, split,   replicates, Extra::extra,   readsCosts,               \
   function},
#include "compiler/schedule/Schedules.def"
};

std::span<const ScheduleRow> schedules() { return kRows; }

const ScheduleRow *findSchedule(std::string_view name) {
  for (const ScheduleRow &row : kRows)
    if (row.name == name)
      return &row;
  return nullptr;
}

void require(bool holds, const std::string &what) {
  if (!holds)
    throw Failure(Exit::Usage, what);
}

void requirePairsOfDevices(const std::string &name, int devices) {
  const std::string fewer =
      devices > 1 ? std::to_string(devices - 1) + " or " : "";
  require(devices % 2 == 0, name + " needs an even number of devices, not " +
                                std::to_string(devices) + "; give --stages " +
                                fewer + std::to_string(devices + 1) +
                                ", on as many devices");
}

static constexpr ScheduleRow kAuto{"auto",
                                   "the best found for these costs, limits "
                                   "and metric",
                                   "search over all of the above",
                                   Layout::Zigzag,
                                   ChunkRule::Free,
                                   true,
                                   true,
                                   false,
                                   Extra::None,
                                   true,
                                   makeAuto};

/// Sizes a schedule of this row can have; fills in what may be left out.
static ScheduleRequest normalize(const ScheduleRow &row,
                                 ScheduleRequest request) {
  std::string name = row.name;
  // Orders are materialized: refuse what would need tens of gigabytes.
  constexpr long long kMostTasks = 1ll << 26;
  require(request.devices >= 1 && request.devices <= 1 << 16,
          name + ": devices must be between 1 and 65536, not " +
              std::to_string(request.devices));
  require(request.microbatches >= 1 && request.microbatches <= 1 << 24,
          name + ": microbatches must be between 1 and 16777216, not " +
              std::to_string(request.microbatches));
  require(request.warmup.empty() || row.extra == Extra::Warmup,
          name + " has no warm-up to choose");
  require(request.groupSize == 0 || row.extra == Extra::GroupSize,
          name + " has no groups of microbatches");
  require(request.slices == 0 || row.extra == Extra::Slices,
          name + " does not cut microbatches into slices");
  require(request.effort == 1 || row.readsCosts,
          name + " is not searched, effort has no place there");
  require(request.effort > 0 && request.effort <= 1e6,
          name + ": effort must be more than 0 and at most 1000000");
  int wanted = row.chunks == ChunkRule::One ? 1 : 2;
  bool open = &row == &kAuto && request.chunks <= 0;
  if (open)
    request.chunks = 1; // what the search can always fall back to
  else if (request.chunks == 0 ||
           (request.chunks == kAutoChunks && row.chunks != ChunkRule::Free))
    request.chunks = wanted;
  if (row.chunks != ChunkRule::Free)
    require(request.chunks == wanted,
            name + " has exactly " + std::to_string(wanted) +
                (wanted == 1 ? " stage" : " stages") + " per device, not " +
                std::to_string(request.chunks));
  require(request.chunks >= 1 && request.chunks <= 1024,
          name + ": chunks must be between 1 and 1024, not " +
              std::to_string(request.chunks));
  require(1ll * request.devices * request.chunks * request.microbatches <=
              kMostTasks,
          name + ": " + std::to_string(request.devices) + " devices times " +
              std::to_string(request.microbatches) +
              " microbatches is more than 67108864 tasks");
  if (open)
    request.chunks = kAutoChunks;
  if (!request.replicas.empty()) {
    require(row.replicates, name + " does not take replicated stages");
    for (int r : request.replicas)
      require(r >= 1, name + ": a stage needs at least one replica");
    int sum =
        std::accumulate(request.replicas.begin(), request.replicas.end(), 0);
    require(sum == request.devices, name + ": replicas add up to " +
                                        std::to_string(sum) + " devices, not " +
                                        std::to_string(request.devices));
  }
  return request;
}

/// The number of stages per device, up to 4, that is best within the limits.
static Schedule bestChunks(const ScheduleRow &row, ScheduleRequest request) {
  Schedule best;
  double least = 0;
  for (bool limited : {true, false}) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      request.chunks = chunks;
      Schedule schedule = generate(row.name, request);
      Costs costs = costsFor(schedule, request);
      VerifyOptions limits;
      limits.costs = &costs;
      if (limited && !verify(schedule, limits).empty())
        continue;
      Timeline timeline = simulate(schedule, costs);
      double cost = request.metric == Metric::Makespan ? timeline.makespan
                                                       : timeline.span;
      if (!best.stages || cost < least * (1 - 1e-12)) {
        best = std::move(schedule);
        least = cost;
      }
    }
    if (best.stages)
      break;
  }
  return best;
}

const ScheduleRow &getSchedule(std::string_view name) {
  if (name == kAuto.name)
    return kAuto;
  if (const ScheduleRow *row = findSchedule(name))
    return *row;
  std::vector<std::string> known;
  for (const ScheduleRow &row : kRows)
    known.emplace_back(row.name);
  known.emplace_back(kAuto.name);
  throw Failure(Exit::Usage, unknownName("schedule", std::string(name), known));
}

Schedule generate(std::string_view name, const ScheduleRequest &request) {
  const ScheduleRow *row = &getSchedule(name);
  if (request.chunks == kAutoChunks && row->chunks == ChunkRule::Free &&
      row != &kAuto)
    return bestChunks(*row, request);
  Schedule schedule = row->make(normalize(*row, request));
  schedule.name = row->name;
  auto violations = verify(schedule);
  if (!violations.empty())
    throw Failure(Exit::Internal,
                  schedule.name +
                      " generated a broken schedule: " + violations[0].message);
  return schedule;
}

Costs costsOn(const std::vector<std::vector<int>> &placement,
              const ScheduleRequest &request) {
  if (!request.stageCosts ||
      request.stageCosts->forward.size() != placement.size())
    return expand(request.costs, placement);
  Costs costs = *request.stageCosts;
  costs.limit = request.costs.limit;
  return costs;
}

Costs costsFor(const Schedule &schedule, const ScheduleRequest &request) {
  Costs costs = costsOn(schedule.placement, request);
  if (schedule.slices > 1)
    for (auto *list :
         {&costs.forward, &costs.backwardInput, &costs.backwardWeight,
          &costs.memoryForward, &costs.memoryInput, &costs.memoryWeight})
      for (double &value : *list)
        value /= schedule.slices;
  return costs;
}

} // namespace pipec::schedule
