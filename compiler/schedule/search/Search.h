//===- Search.h - the best order found in a fixed effort --------*- C++ -*-===//
#pragma once

#include "compiler/schedule/search/Known.h"
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
  /// Leaves out the search that the effort does not suffice for.
  bool completeOnly = false;
  /// Shared by searches of one request. It changes nothing but their time.
  Known *known = nullptr;
};

struct Found {
  Schedule schedule;
  Result result;
  std::string origin; ///< what the order was made from
};

/// Seeds (published orders, list scheduling under many policies, building
/// blocks), improvement of the best of them, and a local search around the
/// winner. Nothing depends on time or on addresses: the effort is a number of
/// task visits. A longer search is not always a better one, so there is one for
/// each power of ten up to the effort, and the next one as far as the effort
/// goes: what a lower effort finds, a higher one finds, too. None when no order
/// meets the limits.
std::vector<Found> findEach(const ScheduleRequest &request,
                            const SearchOptions &options);

/// The best of them under the request's metric.
std::optional<Found> findBest(const ScheduleRequest &request,
                              const SearchOptions &options);

/// The published order of row `name` on this placement as a starting point,
/// when the row has that layout and can serve the request.
std::optional<Schedule> published(const char *name,
                                  const ScheduleRequest &request,
                                  const Family &family);

} // namespace pipec::schedule::search
