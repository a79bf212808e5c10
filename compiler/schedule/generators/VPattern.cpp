//===- VPattern.cpp - repeated building blocks on a V ---------------------===//
//
// Qi et al., NeurIPS 2024 (controllable memory): device i holds stages i and
// 2P-1-i. A block gives each of the four passes of a microbatch a slot; six
// slots later comes the next microbatch. The smaller the steps from device to
// device, the shorter activations live: V-Min steps by one slot (a third of
// 1F1B's memory), V-Half by two down and one up (half of it). The shift by
// `delta` keeps passes of different microbatches apart.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/generators/Published.h"

#include "compiler/schedule/generators/Build.h"
#include "compiler/schedule/search/Justify.h"

#include <algorithm>

namespace pipec::schedule {

VBlock vMinBlock(int p, int i) {
  int delta = p % 3 == 0 ? 2 : 0;
  return {{i, 2 * p - 1 - i}, {4 * p + delta - 1 - i, 2 * p + delta + i}};
}

VBlock vHalfBlock(int p, int i) {
  int delta = p % 2 == 0 ? 3 : 0;
  return {{2 * i, 3 * p - 2 - i},
          {6 * p + delta - 2 - i, 3 * p + delta - 1 + 2 * i}};
}

/// The slots of one device: its passes, then weight gradients in the free ones.
static std::vector<Action> fillSlots(const VBlock &block, int p, int device,
                                     int microbatches) {
  constexpr int kPeriod = 6;
  int stage[2] = {device, 2 * p - 1 - device};
  int last = std::max(block.backward[0], block.backward[1]);
  std::vector<int> slots(last + kPeriod * (microbatches + 1) + 1, -1);
  std::vector<Action> passes;
  for (int k = 0; k < microbatches; ++k)
    for (int c : {0, 1}) {
      slots[block.forward[c] + kPeriod * k] = static_cast<int>(passes.size());
      passes.push_back({Kind::F, stage[c], k});
      slots[block.backward[c] + kPeriod * k] = static_cast<int>(passes.size());
      passes.push_back({Kind::I, stage[c], k});
    }
  std::vector<Action> order;
  std::vector<Action> waiting;
  std::size_t weight = 0;
  for (int slot : slots) {
    if (slot >= 0) {
      order.push_back(passes[slot]);
      if (passes[slot].kind == Kind::I)
        waiting.push_back(
            {Kind::W, passes[slot].stage, passes[slot].microbatch});
    } else if (weight < waiting.size()) {
      order.push_back(waiting[weight++]);
    }
  }
  order.insert(order.end(), waiting.begin() + weight, waiting.end());
  return order;
}

Schedule repeatBlock(const ScheduleRequest &request, VBlock (*block)(int, int),
                     bool squeeze) {
  int p = request.devices;
  Schedule schedule = begin(request, zigzagPlacement(p, 2));
  for (int d = 0; d < p; ++d)
    schedule.order[d] = fillSlots(block(p, d), p, d, request.microbatches);
  if (!squeeze)
    return schedule;
  ScheduleRequest unit;
  unit.devices = p;
  unit.microbatches = request.microbatches;
  search::Problem problem = search::makeProblem(unit, schedule.placement);
  search::Order order = search::toOrder(problem, schedule);
  double peak = 0;
  for (const auto &list : order) {
    double held = 0;
    for (search::Task t : list)
      peak = std::max(peak, held += problem.rows[problem.rowOf(t)].memory);
  }
  problem.limit.assign(p, peak);
  search::Result result;
  order = search::improve(problem, order, 4, result);
  schedule.order = search::toSchedule(problem, order).order;
  return schedule;
}

} // namespace pipec::schedule
