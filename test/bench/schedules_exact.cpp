// The heuristics of the schedule search against branch and bound on small
// problems: a markdown table for schedules_published.py.
#include "compiler/schedule/search/Bounds.h"
#include "compiler/schedule/search/Exact.h"
#include "compiler/schedule/search/Search.h"

#include <cstdio>
#include <string>

using namespace pipec::schedule;

namespace {

struct Profile {
  const char *name;
  double forward, input, weight, comm, memoryInput, memoryWeight;
};
constexpr Profile kProfiles[] = {
    {"unit", 1, 1, 1, 0, 0, -1},
    {"1.5B", 18522, 18086, 9337, 601, -0.6335877862595419, -0.366412213740458},
};

ScheduleRequest requestOf(const Profile &profile, int devices, int microbatches,
                          double limit) {
  ScheduleRequest request;
  request.devices = devices;
  request.microbatches = microbatches;
  DeviceCosts &costs = request.costs;
  costs.forward.assign(devices, profile.forward);
  costs.backwardInput.assign(devices, profile.input);
  costs.backwardWeight.assign(devices, profile.weight);
  costs.comm = {profile.comm};
  costs.memoryForward.assign(devices, 1);
  costs.memoryInput.assign(devices, profile.memoryInput);
  costs.memoryWeight.assign(devices, profile.memoryWeight);
  if (limit > 0)
    costs.limit.assign(devices, limit);
  return request;
}

std::string range(double bound, double best, bool proven) {
  char text[64];
  if (proven)
    std::snprintf(text, sizeof text, "%.7g", best);
  else
    std::snprintf(text, sizeof text, "%.7g to %.7g", bound, best);
  return text;
}

void row(const Profile &profile, int devices, int microbatches, bool zigzag,
         double limit) {
  constexpr long long kMostNodes = 400'000;
  ScheduleRequest request = requestOf(profile, devices, microbatches, limit);
  search::SearchOptions options;
  options.families = {
      {zigzag ? Layout::Zigzag : Layout::Linear, zigzag ? 2 : 1}};
  options.prove = false;
  auto found = search::findBest(request, options);
  if (!found)
    return;
  search::Problem problem = search::makeProblem(
      request, zigzag ? zigzagPlacement(devices, 2) : linearPlacement(devices));
  double heuristic = found->result.makespan;
  double bound = search::lowerBound(problem), best = heuristic;
  bool proven = heuristic <= bound * (1 + 1e-12);
  long long nodes = 0;
  if (!proven) {
    search::Exact exact = search::solveExactly(problem, heuristic, kMostNodes);
    nodes = exact.nodes;
    proven = exact.proven;
    if (!exact.order.empty())
      best = exact.result.makespan;
  }
  double least = proven ? best : bound;
  std::string limited = limit > 0 ? std::to_string(limit).substr(0, 4) : "none";
  std::printf("| %s | %d | %d | %s | %s | %.7g | %s | %.2f %% | %lld |\n",
              profile.name, devices, microbatches, zigzag ? "V" : "line",
              limited.c_str(), heuristic, range(bound, best, proven).c_str(),
              100 * (heuristic / least - 1), nodes);
}

} // namespace

int main() {
  std::printf(
      "| costs | P | M | stages | limit | found | optimum | gap | nodes "
      "|\n|---|---|---|---|---|---|---|---|---|\n");
  for (const Profile &profile : kProfiles)
    for (bool zigzag : {false, true})
      for (int devices : {2, 3, 4})
        for (int microbatches : {2, 4, 6, 8})
          for (double share : {0.0, 1.0, 0.5})
            row(profile, devices, microbatches, zigzag, share * devices);
}
