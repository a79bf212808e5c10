//===- Searched.cpp - schedules found for the costs at hand ---------------===//
//
// These take times, memory and limits in: each searches one or more placements
// for the best order that fits (search/Search.h). The published orders of
// ZB-H1, ZB-V, V-Half and V-Min are among the starting points.
// docs/schedules.md has each beside the published one of its name.
//
//   zb      one stage per device; the automatic schedule of Zero Bubble
//   zb-v    two stages as a V, memory of P microbatches
//   v-half  the same with floor((P+2)/2), about half of 1F1B's
//   v-min   the same with floor((P+4)/3), about a third of 1F1B's
//   1f1b-v  the same with ceil(2P/3), backwards whole
//   v-flex  the same with whatever limit is given
//   auto    all placements, up to four stages per device
//
//   zb, P = 4, M = 8:
//   0 |F0F1F2F3......I0W0F4I1W1F5I2W2F6I3W3F7I4W4I5W5I6W6I7W7
//   1 |..F0F1F2....I0F3I1W0F4I2W1F5I3W2F6I4W3F7I5W4I6W5I7W6W7
//   2 |....F0F1..I0F2I1F3I2W0F4I3W1F5I4W2F6I5W3F7I6W4I7W5W6W7
//   3 |......F0I0F1I1F2I2F3I3W0F4I4W1F5I5W2F6I6W3F7I7W4W5W6W7
//
//   zb-v, P = 4, M = 4:
//   0 |F0F1F2F3......f0i0w0f1i1w1f2i2w2f3i3w3I0W0I1W1I2W2I3W3
//   1 |..F0F1F2F3..f0..f1i0w0f2i1w1f3i2w2I0W0i3I1w3I2W1I3W2W3
//   2 |....F0F1F2f0F3f1..f2i0w0f3i1w1I0W0i2w2I1i3I2W1I3w3W2W3
//   3 |......F0f0F1f1F2f2F3f3i0w0I0W0i1w1I1W1i2I2i3I3w2W2w3W3
//
//   v-half, P = 4, M = 4:
//   0 |F0F1F2F3......f0i0w0f1i1w1..f2I0i2W0w2f3i3I1W1w3I2W2..I3W3
//   1 |..F0F1F2F3..f0..f1i0w0..i1f2I0W0w1i2f3w2I1i3W1I2W2w3I3W3..
//   2 |....F0F1F2f0F3f1....i0w0f2I0W0i1w1f3i2I1W1I2i3w2W2I3w3W3..
//   3 |......F0f0F1f1F2f2....i0I0w0W0F3f3i1I1i2I2w1W1i3I3w2W2w3W3
//
//   v-min, P = 4, M = 4:
//   0 |F0F1..........f0i0f1i1w0F2w1F3....I0W0..f2i2w2I1W1f3i3w3..I2W2....I3W3
//   1 |..F0F1......f0..f1i0w0i1w1F2..F3I0W0..f2..I1i2W1f3w2..i3I2W2w3..I3W3..
//   2 |....F0F1..f0..f1....i0w0i1w1F2I0W0F3f2..I1W1..f3i2w2..I2i3w3W2I3W3....
//   3 |......F0f0F1f1........i0w0i1I0F2w1f2W0I1W1F3f3....i2I2W2w2i3I3W3w3....
//
//   1f1b-v, P = 4, M = 4:
//   0 |FFFF...fb0fb1...fb2...fb3....B0B1B2..B3
//   1 |.FFFF.f.f.b0.b1f...b2f...b3B0B1B2..B3..
//   2 |..FFFfFf....b0fb1...fb2B0B1b3B2..B3....
//   3 |...FfFfFf.....b0Fb1fB0B1b2B2.b3B3......
//
//   v-flex, P = 4, M = 4:
//   0 |F0F1F2F3......f0i0w0f1i1w1f2i2w2f3i3w3I0W0I1W1I2W2I3W3
//   1 |..F0F1F2F3..f0..f1i0w0f2i1w1f3i2w2I0W0i3I1w3I2W1I3W2W3
//   2 |....F0F1F2f0F3f1..f2i0w0f3i1w1I0W0i2w2I1i3I2W1I3w3W2W3
//   3 |......F0f0F1f1F2f2F3f3i0w0I0W0i1w1I1W1i2I2i3I3w2W2w3W3
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/Verifier.h"
#include "compiler/schedule/generators/Build.h"
#include "compiler/schedule/search/Bounds.h"
#include "compiler/schedule/search/Search.h"
#include "support/Failure.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace pipec::schedule {

static std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

/// The limit, or `microbatches` of activations where that is less.
static ScheduleRequest limited(ScheduleRequest request, int microbatches) {
  DeviceCosts &costs = request.costs;
  costs.limit.resize(request.devices, search::kNever);
  for (int d = 0; d < request.devices; ++d) {
    auto at = [&](const std::vector<double> &list, double missing) {
      return list.empty() ? missing : list[d];
    };
    double whole = at(costs.memoryForward, 1) +
                   std::max(0.0, at(costs.memoryInput, 0)) +
                   std::max(0.0, at(costs.memoryWeight, -1));
    costs.limit[d] = std::min(costs.limit[d], microbatches * whole);
  }
  return request;
}

static void checkCosts(const ScheduleRequest &request,
                       const search::SearchOptions &options) {
  for (const search::Family &family : options.families)
    check(costsOn(search::placementOf(family, request.devices), request),
          request.devices * family.chunks, request.devices);
}

[[noreturn]] static void doesNotFit(const char *name,
                                    const ScheduleRequest &request) {
  search::Problem problem =
      search::makeProblem(request, loopedPlacement(request.devices, 1));
  search::LeastLimit least = search::leastLimit(problem);
  throw Failure(Exit::NoFit, std::string(name) + ": nothing fits: device " +
                                 std::to_string(least.device) +
                                 " needs at least " + number(least.needed) +
                                 ", one microbatch, and its limit is " +
                                 number(problem.limit[least.device]));
}

static Schedule searched(const char *name, const ScheduleRequest &request,
                         const search::SearchOptions &options) {
  checkCosts(request, options);
  auto found = search::findBest(request, options);
  if (!found)
    doesNotFit(name, request);
  return std::move(found->schedule);
}

/// One placement is searched longer than each of many.
constexpr double kAlone = 4;

/// Microbatches whose activations zb-v, v-half and v-min hold.
static std::array<int, 3> zigzagMemory(int devices) {
  return {devices, (devices + 2) / 2, (devices + 4) / 3};
}

Schedule makeZB(const ScheduleRequest &request) {
  search::SearchOptions options{{{Layout::Linear, 1}}};
  options.effort = kAlone;
  return searched("zb", request, options);
}

static const search::SearchOptions kV{{{Layout::Zigzag, 2}}};

Schedule makeZBV(const ScheduleRequest &request) {
  return searched("zb-v", limited(request, zigzagMemory(request.devices)[0]),
                  kV);
}

Schedule makeVHalf(const ScheduleRequest &request) {
  return searched("v-half", limited(request, zigzagMemory(request.devices)[1]),
                  kV);
}

Schedule makeVMin(const ScheduleRequest &request) {
  return searched("v-min", limited(request, zigzagMemory(request.devices)[2]),
                  kV);
}

Schedule make1F1BV(const ScheduleRequest &request) {
  search::SearchOptions options = kV;
  options.fused = true;
  options.effort = kAlone;
  return searched("1f1b-v", limited(request, (2 * request.devices + 2) / 3),
                  options);
}

Schedule makeVFlex(const ScheduleRequest &request) {
  return searched("v-flex", request, kV);
}

static std::vector<search::Family> autoFamilies(int chunksAsked) {
  constexpr int kMostChunks = 4;
  std::vector<search::Family> families;
  auto take = [&](Layout layout, int chunks) {
    if (chunksAsked <= 0 || chunksAsked == chunks)
      families.push_back({layout, chunks});
  };
  // The placements that win most often first: effort may run out.
  take(Layout::Zigzag, 4);
  take(Layout::Zigzag, 2);
  take(Layout::Zigzag, 3);
  take(Layout::Looped, 4);
  take(Layout::Linear, 1);
  take(Layout::Looped, 3);
  take(Layout::Looped, 2);
  if (chunksAsked > kMostChunks) {
    take(Layout::Zigzag, chunksAsked);
    take(Layout::Looped, chunksAsked);
  }
  return families;
}

namespace {

/// A placement searched by itself.
struct Alone {
  search::Family family;
  double effort;
  ScheduleRequest request;
  double bound; ///< no order on this placement costs less

  Alone(search::Family family, double effort, ScheduleRequest own)
      : family(family), effort(effort), request(std::move(own)),
        bound(search::lowerBound(search::makeProblem(
            request, search::placementOf(family, request.devices)))) {}
};

/// The searches of the named schedules that could end below one that divides
/// its effort: zb, v-flex with the limits and without them (what it finds may
/// fit all the same, where the limits cost nothing), and of zb-v, v-half and
/// v-min the one of the most memory within the limits.
std::vector<Alone> namedAlone(const ScheduleRequest &request) {
  std::vector<Alone> all;
  const bool any = request.chunks <= 0;
  const int p = request.devices;
  constexpr double kMostTasks = 2e4; // beyond, one search takes its time
  if (6. * p * request.microbatches > kMostTasks)
    return all;
  if (any || request.chunks == 2) {
    ScheduleRequest flexible = request;
    flexible.costs.limit.resize(p, search::kNever);
    ScheduleRequest unlimited = flexible;
    unlimited.costs.limit.assign(p, search::kNever);
    all.emplace_back(kV.families[0], kV.effort, flexible);
    if (flexible.costs.limit != unlimited.costs.limit) {
      Alone free(kV.families[0], kV.effort, unlimited);
      if (free.bound >= all.back().bound * (1 - 1e-9))
        all.push_back(std::move(free));
    }
    for (int microbatches : zigzagMemory(p)) {
      if (limited(unlimited, microbatches).costs.limit == flexible.costs.limit)
        break; // it is v-flex
      ScheduleRequest own = limited(request, microbatches);
      if (own.costs.limit == flexible.costs.limit)
        continue; // it has more than the limits
      all.emplace_back(kV.families[0], kV.effort, std::move(own));
      break;
    }
  }
  if (any || request.chunks == 1)
    all.emplace_back(search::Family{Layout::Linear, 1}, kAlone, request);
  return all;
}

} // namespace

static bool fitsLimits(const Schedule &schedule,
                       const ScheduleRequest &request) {
  Costs costs = costsFor(schedule, request);
  VerifyOptions limits;
  limits.costs = &costs;
  return verify(schedule, limits).empty();
}

/// All placements share one search; then those of named schedules are searched
/// alone where a bound does not rule them out, so that up to some size "auto"
/// is not behind a schedule that it could have taken.
Schedule makeAuto(const ScheduleRequest &request) {
  search::SearchOptions options;
  options.families = autoFamilies(request.chunks);
  checkCosts(request, options);
  auto best = search::findBest(request, options);
  for (const Alone &alone : namedAlone(request)) {
    if (best && best->result.cost(request.metric) <= alone.bound * (1 + 1e-12))
      continue;
    search::SearchOptions own{{alone.family}};
    own.effort = alone.effort;
    auto found = search::findBest(alone.request, own);
    if (!found || (best && found->result.cost(request.metric) >=
                               best->result.cost(request.metric)))
      continue;
    if (fitsLimits(found->schedule, request))
      best = std::move(found);
  }
  if (!best)
    doesNotFit("auto", request);
  return std::move(best->schedule);
}

std::optional<double> lowerBound(std::string_view name,
                                 const Schedule &schedule,
                                 const ScheduleRequest &request) {
  auto bound = [&](const std::vector<std::vector<int>> &placement) {
    return search::lowerBound(search::makeProblem(request, placement));
  };
  if (name == "auto") {
    double least = search::kNever;
    for (const search::Family &family : autoFamilies(request.chunks))
      least =
          std::min(least, bound(search::placementOf(family, request.devices)));
    return least;
  }
  bool copies =
      std::any_of(schedule.placement.begin(), schedule.placement.end(),
                  [](const auto &devices) { return devices.size() > 1; });
  if (copies || schedule.slices > 1)
    return std::nullopt;
  return bound(schedule.placement);
}

} // namespace pipec::schedule
