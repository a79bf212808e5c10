// The heuristics of the schedule search against branch and bound on small
// problems, both metrics: markdown tables for schedules_published.py.
#include "compiler/schedule/search/Bounds.h"
#include "compiler/schedule/search/Exact.h"
#include "compiler/schedule/search/Search.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

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

struct Case {
  Profile profile;
  bool zigzag;
  int devices, microbatches;
  double share; ///< of 1F1B's memory; 0: no limit
};

ScheduleRequest requestOf(const Case &c, Metric metric) {
  ScheduleRequest request;
  request.devices = c.devices;
  request.microbatches = c.microbatches;
  request.metric = metric;
  DeviceCosts &costs = request.costs;
  costs.forward.assign(c.devices, c.profile.forward);
  costs.backwardInput.assign(c.devices, c.profile.input);
  costs.backwardWeight.assign(c.devices, c.profile.weight);
  costs.comm = {c.profile.comm};
  costs.memoryForward.assign(c.devices, 1);
  costs.memoryInput.assign(c.devices, c.profile.memoryInput);
  costs.memoryWeight.assign(c.devices, c.profile.memoryWeight);
  if (c.share > 0)
    costs.limit.assign(c.devices, c.share * c.devices);
  return request;
}

struct Row {
  double found = 0, bound = 0, best = 0;
  bool proven = false;
  long long nodes = 0;
  double gap() const { return 100 * (found / bound - 1); }
};

Row solve(const Case &c, Metric metric) {
  constexpr long long kMostNodes = 300'000;
  ScheduleRequest request = requestOf(c, metric);
  search::SearchOptions options;
  options.families = {
      {c.zigzag ? Layout::Zigzag : Layout::Linear, c.zigzag ? 2 : 1}};
  options.prove = false;
  Row row;
  row.found = search::findBest(request, options)->result.cost(metric);
  search::Problem problem =
      search::makeProblem(request, c.zigzag ? zigzagPlacement(c.devices, 2)
                                            : linearPlacement(c.devices));
  search::Bracket bracket = search::bracket(problem, row.found, kMostNodes);
  row.nodes = bracket.best.nodes;
  row.best =
      bracket.best.order.empty() ? row.found : bracket.best.result.cost(metric);
  row.proven = bracket.best.proven;
  row.bound = row.proven ? row.best : bracket.bound;
  return row;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.7g", value);
  return text;
}

/// found | optimum, or the range it lies in | gap |
std::string cells(const Row &row) {
  char gap[32];
  std::snprintf(gap, sizeof gap, "%.2f %%", row.gap());
  std::string optimum = number(row.best);
  if (!row.proven)
    optimum = number(row.bound) + " to " + optimum;
  return number(row.found) + " | " + optimum + " | " + gap + " | ";
}

struct Summary {
  int count = 0, proven = 0, optimal = 0;
  double most = 0, sum = 0; ///< gaps of what is proven
  double open = 0;          ///< largest gap of what is not
  void add(const Row &row) {
    ++count;
    if (!row.proven) {
      open = std::max(open, row.gap());
      return;
    }
    ++proven;
    optimal += row.gap() < 1e-6;
    most = std::max(most, row.gap());
    sum += row.gap();
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Profile &profile : kProfiles)
    for (bool zigzag : {false, true})
      for (int devices : {2, 3, 4})
        for (int microbatches : {1, 2, 3, 4, 5, 6, 7, 8})
          for (double share : {0.0, 1.0, 0.5})
            all.push_back({profile, zigzag, devices, microbatches, share});
  return all;
}

} // namespace

int main() {
  std::map<std::string, Summary> summaries;
  std::string table =
      "| costs | P | M | stages | limit | makespan found | optimum | gap | "
      "span found | optimum | gap | nodes |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Case &c : cases()) {
    Row makespan = solve(c, Metric::Makespan), span = solve(c, Metric::Span);
    const char *stages = c.zigzag ? "V" : "line";
    std::string limit =
        c.share > 0 ? number(c.share * c.devices) : std::string("none");
    std::string key = std::string(c.profile.name) + " | " + stages + " | " +
                      (c.share > 0 ? number(c.share) + " P" : "none");
    summaries[key + " | makespan"].add(makespan);
    summaries[key + " | span"].add(span);
    table += std::string("| ") + c.profile.name + " | " +
             std::to_string(c.devices) + " | " +
             std::to_string(c.microbatches) + " | " + stages + " | " + limit +
             " | " + cells(makespan) + cells(span) +
             std::to_string(makespan.nodes + span.nodes) + " |\n";
  }
  std::printf("| costs | stages | limit | metric | problems | proven | found "
              "optimal | mean gap | largest | largest not proven |\n"
              "|---|---|---|---|---|---|---|---|---|---|\n");
  for (const auto &[key, s] : summaries)
    std::printf("| %s | %d | %d | %d | %.3f %% | %.2f %% | %.2f %% |\n",
                key.c_str(), s.count, s.proven, s.optimal,
                s.proven ? s.sum / s.proven : 0, s.most, s.open);
  std::printf("\n%s", table.c_str());
}
