//===- Search.h - the best order found in a fixed effort --------*- C++ -*-===//
#pragma once

#include "compiler/schedule/search/Problem.h"

#include <optional>
#include <string>
#include <vector>

namespace pipec::schedule::search {

/// A placement to search on.
struct Family {
  Layout layout;
  int chunks;
};
std::vector<std::vector<int>> placementOf(const Family &family, int devices);

struct SearchOptions {
  std::vector<Family> families;
  /// Backwards stay whole: I and W as one task.
  bool fused = false;
  /// Scales the effort, which otherwise follows from the size and the request.
  double effort = 1;
  /// Small problems end with branch and bound.
  bool prove = true;
};

struct Found {
  Schedule schedule;
  Result result;
  std::string origin; ///< what the order was made from
};

/// Seeds (published orders, list scheduling under many policies, building
/// blocks), improvement of the best of them, and a local search around the
/// winner. Nothing depends on time or on addresses: the effort is a number of
/// task visits. Nothing when no order meets the limits.
std::optional<Found> findBest(const ScheduleRequest &request,
                              const SearchOptions &options);

/// The published order of row `name` on this placement as a starting point,
/// when the row has that layout and can serve the request.
std::optional<Schedule> published(const char *name,
                                  const ScheduleRequest &request,
                                  const Family &family);

/// The least limit any schedule of this request needs on the device that needs
/// most beyond its limit: one microbatch at a time.
struct LeastLimit {
  int device = 0;
  double needed = 0;
};
LeastLimit leastLimit(const Problem &problem);

} // namespace pipec::schedule::search
