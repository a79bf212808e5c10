//===- Searched.cpp - schedules found for the costs at hand ---------------===//
//
// These take times, memory and limits in: each searches one or more placements
// for the best order that fits (search/Search.h). The published order of the
// same name is always among the starting points, so a schedule here is never
// worse than the literature's, and equal to it where that is optimal.
//
//   zb      one stage per device; the automatic schedule of Zero Bubble
//   zb-v    two stages as a V, memory of P microbatches
//   v-half  the same with floor((P+2)/2), about half of 1F1B's
//   v-min   the same with floor((P+4)/3), about a third of 1F1B's
//   1f1b-v  the same with ceil(2P/3), backwards whole
//   v-flex  the same with whatever limit is given
//   auto    all placements, up to four stages per device
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/generators/Build.h"
#include "compiler/schedule/search/Search.h"
#include "support/Failure.h"

#include <algorithm>
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

static Schedule searched(const char *name, const ScheduleRequest &request,
                         const search::SearchOptions &options) {
  for (const search::Family &family : options.families) {
    auto placement = family.layout == Layout::Zigzag
                         ? zigzagPlacement(request.devices, family.chunks)
                         : loopedPlacement(request.devices, family.chunks);
    check(expand(request.costs, placement), request.devices * family.chunks,
          request.devices);
  }
  auto found = search::findBest(request, options);
  if (found)
    return std::move(found->schedule);
  search::Problem problem =
      search::makeProblem(request, loopedPlacement(request.devices, 1));
  search::LeastLimit least = search::leastLimit(problem);
  throw Failure(Exit::NoFit, std::string(name) + ": nothing fits: device " +
                                 std::to_string(least.device) +
                                 " needs at least " + number(least.needed) +
                                 ", one microbatch, and its limit is " +
                                 number(problem.limit[least.device]));
}

Schedule makeZB(const ScheduleRequest &request) {
  return searched("zb", request, {{{Layout::Linear, 1}}});
}

static const search::SearchOptions kV{{{Layout::Zigzag, 2}}};

Schedule makeZBV(const ScheduleRequest &request) {
  return searched("zb-v", limited(request, request.devices), kV);
}

Schedule makeVHalf(const ScheduleRequest &request) {
  return searched("v-half", limited(request, (request.devices + 2) / 2), kV);
}

Schedule makeVMin(const ScheduleRequest &request) {
  return searched("v-min", limited(request, (request.devices + 4) / 3), kV);
}

Schedule make1F1BV(const ScheduleRequest &request) {
  search::SearchOptions options = kV;
  options.fused = true;
  return searched("1f1b-v", limited(request, (2 * request.devices + 2) / 3),
                  options);
}

Schedule makeVFlex(const ScheduleRequest &request) {
  return searched("v-flex", request, kV);
}

Schedule makeAuto(const ScheduleRequest &request) {
  constexpr int kMostChunks = 4;
  search::SearchOptions options;
  auto take = [&](Layout layout, int chunks) {
    if (request.chunks <= 0 || request.chunks == chunks)
      options.families.push_back({layout, chunks});
  };
  // The placements that win most often first: effort may run out.
  take(Layout::Zigzag, 4);
  take(Layout::Zigzag, 2);
  take(Layout::Zigzag, 3);
  take(Layout::Looped, 4);
  take(Layout::Linear, 1);
  take(Layout::Looped, 3);
  take(Layout::Looped, 2);
  if (request.chunks > kMostChunks) {
    take(Layout::Zigzag, request.chunks);
    take(Layout::Looped, request.chunks);
  }
  return searched("auto", request, options);
}

} // namespace pipec::schedule
