//===- Arena.cpp - order of units, offsets in the workspace ---------------===//
#include "compiler/target/fusion/Plan.h"

#include <queue>

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;

LogicalResult fusion::orderUnits(TaskPlan &plan) {
  size_t n = plan.units.size();
  std::vector<SmallVector<int>> next(n);
  std::vector<int> missing(n, 0);
  for (size_t i = 0; i < n; ++i) {
    Unit &unit = plan.units[i];
    llvm::sort(unit.after);
    unit.after.erase(llvm::unique(unit.after), unit.after.end());
    for (int before : unit.after) {
      next[before].push_back(i);
      ++missing[i];
    }
  }
  using Entry = std::pair<int64_t, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> ready;
  auto push = [&](int unit) { ready.push({plan.units[unit].priority, unit}); };
  for (size_t i = 0; i < n; ++i)
    if (!missing[i])
      push(i);
  while (!ready.empty()) {
    int unit = ready.top().second;
    ready.pop();
    plan.order.push_back(unit);
    for (int later : next[unit])
      if (--missing[later] == 0)
        push(later);
  }
  if (plan.order.size() != n)
    return plan.func.emitError("internal error: the kernels of this task wait "
                               "for each other");
  return success();
}

void fusion::layoutArena(TaskPlan &plan) {
  struct Range {
    int buffer;
    int64_t first, last;
  };
  std::vector<Range> ranges;
  std::vector<int> rangeOf(plan.buffers.size(), -1);
  for (auto [time, unit] : llvm::enumerate(plan.order))
    for (int buffer : plan.units[unit].touches) {
      if (plan.buffers[buffer].kind != Buffer::Arena)
        continue;
      int &range = rangeOf[buffer];
      if (range < 0) {
        range = ranges.size();
        ranges.push_back({buffer, static_cast<int64_t>(time), 0});
      }
      ranges[range].last = time;
    }
  llvm::sort(ranges, [&](const Range &a, const Range &b) {
    return std::tuple(-plan.buffers[a.buffer].bytes, a.first, a.buffer) <
           std::tuple(-plan.buffers[b.buffer].bytes, b.first, b.buffer);
  });
  std::vector<Range> settled;
  for (const Range &range : ranges) {
    Buffer &buffer = plan.buffers[range.buffer];
    int64_t size = llvm::alignTo(std::max<int64_t>(buffer.bytes, 1), 64);
    // First gap between the buffers that live at the same time.
    SmallVector<std::pair<int64_t, int64_t>> taken;
    for (const Range &other : settled)
      if (other.first <= range.last && range.first <= other.last) {
        const Buffer &b = plan.buffers[other.buffer];
        taken.push_back(
            {b.offset,
             b.offset + llvm::alignTo(std::max<int64_t>(b.bytes, 1), 64)});
      }
    llvm::sort(taken);
    int64_t at = 0;
    for (auto [begin, end] : taken) {
      if (at + size <= begin)
        break;
      at = std::max(at, end);
    }
    buffer.offset = at;
    plan.workspace = std::max(plan.workspace, at + size);
    settled.push_back(range);
  }
}
