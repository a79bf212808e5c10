#include "compiler/plan/published/Offload.h"

#include <algorithm>

namespace pipec::published {

Offload::Offload(const PlacementUnits &units) {
  std::vector<std::pair<double, double>> items; // cpu, accelerator
  for (int u = 0; u < units.size(); ++u)
    if (units.latency[u] > 0)
      items.push_back({units.cpuLatency[u], units.latency[u]});
  std::sort(items.begin(), items.end(), [](const auto &a, const auto &b) {
    return a.second * b.first > b.second * a.first;
  });
  double cpu = 0, work = 0;
  for (auto [c, w] : items)
    points.push_back({cpu += c, work += w});
}

double Offload::most(double seconds, int cpus) const {
  const double budget = seconds * cpus;
  double before = 0, done = 0;
  for (auto [cpu, work] : points) {
    if (cpu > budget) {
      const double share =
          cpu > before ? (budget - before) / (cpu - before) : 0;
      return done + share * (work - done);
    }
    before = cpu;
    done = work;
  }
  return done;
}

} // namespace pipec::published
