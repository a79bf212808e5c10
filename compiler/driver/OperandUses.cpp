//===- OperandUses.cpp - when a call's operands were last touched ---------===//
#include "compiler/driver/OperandUses.h"

namespace pipec {
namespace {

/// What is farther away than any core's own cache is far.
constexpr double kFarthest = 256e6;

/// The buffers of a task in the order in which they are touched.
class Touches {
public:
  explicit Touches(const fusion::TaskPlan &task)
      : task(task), latest(task.buffers.size(), -1) {}

  plan::OperandUse touch(int buffer) {
    const fusion::Buffer &own = task.buffers[static_cast<size_t>(buffer)];
    plan::OperandUse use{static_cast<double>(own.bytes), distanceOf(buffer)};
    if (use.distance < 0 && own.kind == fusion::Buffer::Arena)
      use.distance = static_cast<double>(task.workspace);
    latest[static_cast<size_t>(buffer)] = static_cast<int64_t>(order.size());
    order.push_back(buffer);
    return use;
  }

private:
  /// Bytes of the other buffers that were touched since; below 0: not yet.
  double distanceOf(int buffer) const {
    const int64_t last = latest[static_cast<size_t>(buffer)];
    if (last < 0)
      return -1;
    double bytes = 0;
    for (auto at = static_cast<int64_t>(order.size()) - 1;
         at > last && bytes < kFarthest; --at) {
      const auto other = static_cast<size_t>(order[static_cast<size_t>(at)]);
      if (latest[other] == at) // each counts once
        bytes += static_cast<double>(task.buffers[other].bytes);
    }
    return bytes;
  }

  const fusion::TaskPlan &task;
  std::vector<int> order;
  std::vector<int64_t> latest; ///< by buffer: where in `order`
};

} // namespace

std::vector<std::vector<plan::OperandUse>>
operandUses(const fusion::TaskPlan &task) {
  std::vector<std::vector<plan::OperandUse>> uses(task.units.size());
  Touches touches(task);
  for (int unit : task.order) {
    llvm::SmallVector<int> own = task.units[static_cast<size_t>(unit)].touches;
    llvm::sort(own);
    own.erase(llvm::unique(own), own.end());
    for (int buffer : own)
      if (buffer >= 0)
        uses[static_cast<size_t>(unit)].push_back(touches.touch(buffer));
  }
  return uses;
}

} // namespace pipec
