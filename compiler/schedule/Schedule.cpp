//===- Schedule.cpp - placements and facts about an order -----------------===//
#include "compiler/schedule/Schedule.h"

#include <algorithm>

namespace pipec::schedule {

char letter(Kind kind) { return "FBIW"[static_cast<int>(kind)]; }

std::string toString(const Action &action) {
  return std::to_string(action.stage) + letter(action.kind) +
         std::to_string(action.microbatch);
}

std::vector<int> Schedule::stagesOf(int device) const {
  std::vector<int> result;
  for (int s = 0; s < stages; ++s)
    if (replicaOn(s, device) >= 0)
      result.push_back(s);
  return result;
}

int Schedule::replicaOn(int stage, int device) const {
  const auto &copies = placement[stage];
  auto it = std::find(copies.begin(), copies.end(), device);
  return it == copies.end() ? -1 : static_cast<int>(it - copies.begin());
}

Schedule unrollSlices(const Schedule &schedule) {
  Schedule result = schedule;
  const int q = schedule.slices;
  result.slices = 1;
  result.stages *= q;
  result.microbatches /= q;
  for (int j = 1; j < q; ++j)
    result.placement.insert(result.placement.end(), schedule.placement.begin(),
                            schedule.placement.end());
  for (auto &order : result.order)
    for (Action &action : order) {
      action.stage += action.microbatch % q * schedule.stages;
      action.microbatch /= q;
    }
  return result;
}

std::vector<std::vector<int>> linearPlacement(int devices) {
  return loopedPlacement(devices, 1);
}

std::vector<std::vector<int>> loopedPlacement(int devices, int chunks) {
  std::vector<std::vector<int>> placement;
  for (int s = 0; s < devices * chunks; ++s)
    placement.push_back({s % devices});
  return placement;
}

std::vector<std::vector<int>> zigzagPlacement(int devices, int chunks) {
  std::vector<std::vector<int>> placement;
  for (int s = 0; s < devices * chunks; ++s) {
    int along = s % devices;
    bool down = s / devices % 2 == 0;
    placement.push_back({down ? along : devices - 1 - along});
  }
  return placement;
}

std::vector<std::vector<int>> bidirectionalPlacement(int devices) {
  std::vector<std::vector<int>> placement;
  for (int s = 0; s < devices; ++s)
    placement.push_back({s, devices - 1 - s});
  return placement;
}

std::vector<std::vector<int>>
replicatedPlacement(const std::vector<int> &replicas) {
  std::vector<std::vector<int>> placement;
  int next = 0;
  for (int count : replicas) {
    std::vector<int> &copies = placement.emplace_back();
    for (int r = 0; r < count; ++r)
      copies.push_back(next++);
  }
  return placement;
}

int inFlight(const Schedule &schedule, int device, int stage, bool untilInput) {
  int now = 0, most = 0;
  for (const Action &a : schedule.order[device]) {
    if (a.stage != stage)
      continue;
    if (a.kind == Kind::F)
      most = std::max(most, ++now);
    else if (a.kind == Kind::B || a.kind == (untilInput ? Kind::I : Kind::W))
      --now;
  }
  return most;
}

int betweenHalves(const Schedule &schedule, int device, int stage) {
  int now = 0, most = 1;
  for (const Action &a : schedule.order[device]) {
    if (a.stage != stage)
      continue;
    if (a.kind == Kind::I)
      most = std::max(most, ++now);
    else if (a.kind == Kind::W)
      --now;
    else if (a.kind == Kind::B)
      most = std::max(most, now + 1);
  }
  return most;
}

std::vector<std::vector<int>> inFlight(const Schedule &schedule) {
  std::vector<std::vector<int>> result(schedule.stages);
  for (int s = 0; s < schedule.stages; ++s)
    for (int device : schedule.placement[s])
      result[s].push_back(inFlight(schedule, device, s));
  return result;
}

std::vector<int> forwardsAhead(const Schedule &schedule) {
  std::vector<int> ahead(schedule.devices(), 0);
  std::vector<int> forwards(schedule.stages, 0); // ahead, by stage
  for (int d = 0; d + 1 < schedule.devices(); ++d)
    for (const Action &a : schedule.order[d]) {
      int from = a.stage - 1;
      bool fed = a.stage == 0 || (schedule.deviceOf(from, a.microbatch) <= d &&
                                  forwards[from] > forwards[a.stage]);
      if (a.kind != Kind::F || a.stage + 1 == schedule.stages || !fed)
        break;
      ++ahead[d], ++forwards[a.stage];
    }
  return ahead;
}

} // namespace pipec::schedule
