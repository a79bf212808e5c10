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
//   0 |F0F1..........f0i0w0..f1F2i1w1F3........I0W0f2i2w2f3i3I1W1w3..I2W2I3W3
//   1 |..F0F1......f0....i0f1w0..F2i1w1F3....I0W0f2I1W1f3i2..i3w2..I2w3I3W2W3
//   2 |....F0....f0F1....f1i0w0....F2i1w1F3I0W0f2I1W1f3....i2..i3I2w2I3W2w3W3
//   3 |......F0f0....F1f1....i0I0w0W0F2i1I1W1f2F3w1f3........i2I2i3I3w2W2W3w3
//
//   1f1b-v, P = 4, M = 4:
//   0 |FFFF...fb0fb1...fb2...fb3B0..B1..B2..B3
//   1 |.FFFF.f.f.b0.b1f...b2fB0.b3B1..B2..B3..
//   2 |..FFFfFf....b0fb1.B0fb2.B1.b3B2..B3....
//   3 |...FfFfFf.....b0B0Ffb1B1b2B2.b3B3......
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
#include "support/Phase.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace pipec::schedule {

static std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

/// The limits, or `microbatches` of activations where that is less.
static std::vector<double> limitsOf(const ScheduleRequest &request,
                                    int microbatches,
                                    std::vector<double> limit) {
  const DeviceCosts &costs = request.costs;
  limit.resize(request.devices, search::kNever);
  for (int d = 0; d < request.devices; ++d) {
    auto at = [&](const std::vector<double> &list, double missing) {
      return list.empty() ? missing : list[d];
    };
    double whole = at(costs.memoryForward, 1) +
                   std::max(0.0, at(costs.memoryInput, 0)) +
                   std::max(0.0, at(costs.memoryWeight, -1));
    limit[d] = std::min(limit[d], microbatches * whole);
  }
  return limit;
}

static ScheduleRequest limited(ScheduleRequest request, int microbatches) {
  request.costs.limit =
      limitsOf(request, microbatches, std::move(request.costs.limit));
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

/// Named schedules on a V: half of what auto spends on all placements.
static const search::SearchOptions kV{{{Layout::Zigzag, 2}}, false, 0.5};

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
};

/// The searches of the named schedules that could end below one that divides
/// its effort.
class NamedAlone {
public:
  explicit NamedAlone(const ScheduleRequest &given) : request(given) {
    const int p = request.devices;
    request.costs.limit.resize(p, search::kNever);
    constexpr double kMostTasks = 2e4; // beyond, one search takes its time
    if (6. * p * request.microbatches > kMostTasks)
      return;
    const bool any = request.chunks <= 0;
    if (any || request.chunks == 2)
      zigzags();
    if (any || request.chunks == 1)
      line();
  }

  std::vector<Alone> all;

private:
  using Limits = std::vector<double>;

  void add(search::Family family, double effort, const Limits &limit,
           Metric metric) {
    ScheduleRequest own = request;
    own.costs.limit = limit;
    own.metric = metric;
    all.push_back({family, effort, std::move(own)});
  }

  /// v-flex within the limits; of zb-v, v-half and v-min the one of the most
  /// memory within the limits, and the one of the least beyond them, as the
  /// limits could be the peaks of what it finds.
  void zigzags() {
    const search::Family v = kV.families[0];
    const Limits &limit = request.costs.limit;
    const Limits none(request.devices, search::kNever);
    Limits above = none, below;
    for (int microbatches : zigzagMemory(request.devices)) {
      const Limits own = limitsOf(request, microbatches, none);
      if (covers(own, limit))
        above = own;
      else if (below.empty())
        below = limitsOf(request, microbatches, limit);
    }
    // Beyond all of theirs could be the peaks of a free v-flex.
    std::vector<Limits> limits = {above};
    if (!below.empty())
      limits.push_back(below);
    constexpr int kSmall = 600; // tasks; beyond, more searches seldom help
    const bool small = 6 * request.devices * request.microbatches <= kSmall;
    if (small && above != none)
      limits.push_back(none);
    // Named schedules are made under either metric, and what is best in one
    // can be better in the other, too.
    for (Metric metric : {Metric::Makespan, Metric::Span}) {
      add(v, kV.effort, limit, metric);
      for (const Limits &own : limits)
        if (own != limit && (small || metric == request.metric))
          add(v, kV.effort, own, metric);
    }
  }

  /// Whether `more` is the limits or beyond them, but for what a peak is
  /// rounded to.
  static bool covers(const Limits &more, const Limits &limit) {
    constexpr double kRounded = 1e-3;
    for (std::size_t d = 0; d < limit.size(); ++d)
      if (more[d] < limit[d] * (1 - kRounded))
        return false;
    return true;
  }

  void line() {
    const search::Family one{Layout::Linear, 1};
    const Limits &limit = request.costs.limit;
    const Limits none(request.devices, search::kNever);
    add(one, kAlone, limit, request.metric);
    if (limit != none && freeAsBound(one))
      add(one, kAlone, none, request.metric);
  }

  /// Whether the limits cost nothing as far as the bounds know, so that what is
  /// found without them may fit all the same.
  bool freeAsBound(const search::Family &family) const {
    const auto placement = search::placementOf(family, request.devices);
    ScheduleRequest free = request;
    free.costs.limit.clear();
    return search::lowerBound(search::makeProblem(free, placement)) >=
           search::lowerBound(search::makeProblem(request, placement)) *
               (1 - 1e-9);
  }

  ScheduleRequest request;
};

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
  const std::vector<Alone> named = NamedAlone(request).all;
  search::Known known;
  options.known = named.empty() ? nullptr : &known;
  auto cost = [&](const search::Found &found) {
    return found.result.cost(request.metric);
  };
  std::vector<double> limit = request.costs.limit;
  limit.resize(request.devices, search::kNever);
  Phase searches("search", std::ssize(named) + 1);
  searches.next();
  auto best = search::findBest(request, options);
  for (const Alone &alone : named) {
    searches.next();
    const double bound = search::lowerBound(search::makeProblem(
        request, search::placementOf(alone.family, request.devices)));
    if (best && cost(*best) <= bound * (1 + 1e-12))
      continue;
    search::SearchOptions own{{alone.family}};
    own.effort = alone.effort;
    own.known = &known;
    // What is better for another request need not be better for this one, and
    // more effort must not lose what less has found.
    own.completeOnly = alone.request.metric != request.metric ||
                       alone.request.costs.limit != limit;
    for (search::Found &found : search::findEach(alone.request, own))
      if ((!best || cost(found) < cost(*best)) &&
          fitsLimits(found.schedule, request))
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
