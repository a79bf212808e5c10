//===- Costs.cpp - cost lookup and expansion ------------------------------===//
#include "compiler/schedule/Costs.h"

#include "support/Failure.h"

#include <algorithm>
#include <cmath>

namespace pipec::schedule {

static double of(Kind kind, double forward, double input, double weight) {
  switch (kind) {
  case Kind::F:
    return forward;
  case Kind::I:
    return input;
  case Kind::W:
    return weight;
  case Kind::B:
    break;
  }
  return input + weight;
}

double Costs::time(Kind kind, int stage, int device) const {
  if (onDevice.empty())
    return of(kind, forward[stage], backwardInput[stage],
              backwardWeight[stage]);
  const OnDevice &own = onDevice[device];
  return of(kind, own.forward, own.backwardInput, own.backwardWeight);
}

double Costs::memory(Kind kind, int stage, int device) const {
  if (onDevice.empty())
    return of(kind, memoryForward[stage], memoryInput[stage],
              memoryWeight[stage]);
  const OnDevice &own = onDevice[device];
  return of(kind, own.memoryForward, own.memoryInput, own.memoryWeight);
}

double Costs::hop(int stage, int from, int to) const {
  if (from == to)
    return 0;
  double time = comm.empty() ? 0 : comm[comm.size() == 1 ? 0 : stage];
  if (!linkFactor.empty())
    time *= linkFactor[from][to];
  if (!linkDelay.empty())
    time += linkDelay[from][to];
  return time;
}

Costs expand(const UniformCosts &u, int devices, int chunks) {
  int stages = devices * chunks;
  auto each = [&](double value) {
    return std::vector<double>(stages, value / chunks);
  };
  Costs costs;
  costs.forward = each(u.forward);
  costs.backwardInput = each(u.backwardInput);
  costs.backwardWeight = each(u.backwardWeight);
  costs.memoryForward = each(u.memoryForward);
  costs.memoryInput = each(u.memoryInput);
  costs.memoryWeight = each(u.memoryWeight);
  costs.comm = {u.comm};
  if (u.limit >= 0)
    costs.limit.assign(devices, u.limit);
  return costs;
}

Costs expand(const DeviceCosts &perDevice,
             const std::vector<std::vector<int>> &placement) {
  // A device without a stage still has its links.
  int devices = static_cast<int>(perDevice.forward.size());
  bool copies = false;
  for (const auto &on : placement) {
    copies |= on.size() > 1;
    for (int d : on)
      devices = std::max(devices, d + 1);
  }
  // Copies of one stage in opposite device order (bidirectional) share the
  // device's time between the copies' stages; a replica holds its stage whole.
  const int chunks = std::max<int>(1, static_cast<int>(placement.size()) /
                                          std::max(1, devices));
  auto entry = [&](const std::vector<double> &list, double missing, int d) {
    return (list.empty() ? missing : list[d]) / chunks;
  };
  auto spread = [&](const std::vector<double> &list, double missing) {
    std::vector<double> result;
    for (const auto &on : placement)
      result.push_back(entry(list, missing, on[0]));
    return result;
  };
  Costs costs;
  costs.forward = spread(perDevice.forward, 1);
  costs.backwardInput = spread(perDevice.backwardInput, 1);
  costs.backwardWeight = spread(perDevice.backwardWeight, 1);
  costs.memoryForward = spread(perDevice.memoryForward, 1);
  costs.memoryInput = spread(perDevice.memoryInput, 0);
  costs.memoryWeight = spread(perDevice.memoryWeight, -1);
  costs.limit = perDevice.limit;
  for (int d = 0; copies && d < devices; ++d)
    costs.onDevice.push_back({entry(perDevice.forward, 1, d),
                              entry(perDevice.backwardInput, 1, d),
                              entry(perDevice.backwardWeight, 1, d),
                              entry(perDevice.memoryForward, 1, d),
                              entry(perDevice.memoryInput, 0, d),
                              entry(perDevice.memoryWeight, -1, d)});
  if (!perDevice.link.empty())
    costs.linkDelay = perDevice.link;
  else if (perDevice.comm.size() <= 1)
    costs.comm = perDevice.comm;
  else {
    // Per link between neighbours: a hop over several takes the slowest.
    costs.linkDelay.assign(devices, std::vector<double>(devices, 0));
    for (int a = 0; a < devices; ++a)
      for (int b = 0; b < devices; ++b)
        for (int d = std::min(a, b); d < std::max(a, b); ++d)
          costs.linkDelay[a][b] =
              std::max(costs.linkDelay[a][b], perDevice.comm[d]);
  }
  return costs;
}

static void checkList(const std::vector<double> &list, int stages,
                      const char *what, bool time) {
  if (static_cast<int>(list.size()) != stages)
    throw Failure(Exit::Usage, std::string("costs: ") + what + " has " +
                                   std::to_string(list.size()) +
                                   " entries, wanted " +
                                   std::to_string(stages) + ", one per stage");
  for (std::size_t i = 0; i < list.size(); ++i)
    if (!std::isfinite(list[i]) || (time && list[i] < 0) ||
        std::abs(list[i]) > 1e15)
      throw Failure(Exit::Usage,
                    std::string("costs: ") + what + "[" + std::to_string(i) +
                        "] must be " +
                        (time ? "between 0 and 1e15" : "within ±1e15"));
}

void check(const Costs &costs, int stages, int devices) {
  checkList(costs.forward, stages, "F time", true);
  checkList(costs.backwardInput, stages, "B time", true);
  checkList(costs.backwardWeight, stages, "W time", true);
  checkList(costs.memoryForward, stages, "F memory", false);
  checkList(costs.memoryInput, stages, "B memory", false);
  checkList(costs.memoryWeight, stages, "W memory", false);
  for (int s = 0; s < stages; ++s)
    if (!(costs.forward[s] > 0))
      throw Failure(Exit::Usage, "costs: F time[" + std::to_string(s) +
                                     "] must be greater than 0");
  int hops = static_cast<int>(costs.comm.size());
  if (hops > 1 && hops != stages - 1)
    throw Failure(Exit::Usage, "costs: comm has " + std::to_string(hops) +
                                   " entries, wanted 1 or " +
                                   std::to_string(stages - 1));
  checkList(costs.comm, hops, "comm", true);
  for (const auto *matrix : {&costs.linkFactor, &costs.linkDelay}) {
    if (!matrix->empty() && static_cast<int>(matrix->size()) != devices)
      throw Failure(Exit::Usage, "costs: link matrix needs one row per device");
    for (const auto &row : *matrix)
      checkList(row, devices, "link", true);
  }
  if (!costs.limit.empty())
    checkList(costs.limit, devices, "limit", true);
}

} // namespace pipec::schedule
