//===- Traffic.cpp - what a unit reads and writes -------------------------===//
#include "compiler/target/fusion/Traffic.h"
#include "compiler/target/fusion/Math.h"

#include <map>
#include <tuple>

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;
using nn::tensorType;

int64_t fusion::placedBytes(RankedTensorType type, const Placement &place) {
  int64_t elements = 1;
  for (auto [size, stride] :
       llvm::zip(type.getShape(), ArrayRef<int64_t>(place.strides)))
    if (stride != 0)
      elements *= size;
  return elements * elementBytes(type.getElementType());
}

namespace {
class Counter {
public:
  Counter(const TaskPlan &plan, const Unit &unit) : plan(plan), unit(unit) {}

  Traffic run() {
    switch (unit.kind) {
    case Unit::Kernel:
      addKernel(unit.kernel);
      break;
    case Unit::Library:
      addLibrary();
      break;
    case Unit::Copy: {
      auto type = RankedTensorType::get(unit.shape, unit.element);
      add(read, type, unit.from);
      add(written, type, unit.to);
      break;
    }
    case Unit::Scalar:
      break;
    }
    return {sum(read), sum(written)};
  }

private:
  /// Bytes by where they begin: two views of one tensor are one.
  using Places = std::map<std::tuple<int, int, int64_t>, int64_t>;

  void add(Places &places, int buffer, int64_t offset, int64_t bytes) {
    if (buffer < 0)
      return;
    const Buffer &at = plan.buffers[buffer];
    const int name = at.kind == Buffer::Region ? at.region : buffer;
    const int64_t first = at.kind == Buffer::Region ? at.offset : 0;
    int64_t &most = places[{at.kind, name, first + offset}];
    most = std::max(most, bytes);
  }
  void add(Places &places, RankedTensorType type, const Placement &at) {
    add(places, at.buffer, at.offset * elementBytes(type.getElementType()),
        placedBytes(type, at));
  }
  void add(Places &places, Value value, const Placement &at) {
    add(places, tensorType(value), at);
  }
  static int64_t sum(const Places &places) {
    int64_t bytes = 0;
    for (const auto &[place, size] : places)
      bytes += size;
    return bytes;
  }

  void addTarget(const Target &target) {
    add(written, target.value, target.place);
    if (target.accumulate)
      add(read, target.value, target.place);
  }

  void addKernel(const KernelPlan &kernel) {
    for (const auto &[value, leaf] : kernel.leaves) {
      if (leaf.kind == Leaf::Memory)
        add(read, value, leaf.place);
      else if (leaf.kind == Leaf::Partials)
        add(read, leaf.place.buffer, 0, plan.buffers[leaf.place.buffer].bytes);
    }
    for (const Target &target : kernel.targets)
      addTarget(target);
    for (const Placement &partial : kernel.partials)
      add(written, partial.buffer, 0, plan.buffers[partial.buffer].bytes);
  }

  /// Of rows by index those that are named, each once.
  void addRows(Operation *op) {
    const bool adds = isa<nn::ScatterAddOp>(op);
    const Value table = adds ? op->getResult(0) : op->getOperand(0);
    const Value rows = adds ? op->getOperand(1) : op->getResult(0);
    const int indices = adds ? 0 : 1;
    const Placement &at = unit.operands[adds ? 2 : 0];
    const int64_t named =
        std::min(nn::byteSize(rows.getType()), nn::byteSize(table.getType()));
    add(read, op->getOperand(indices), unit.operands[indices]);
    add(adds ? read : written, rows, unit.operands[adds ? 1 : 2]);
    add(read, at.buffer, at.offset, named);
    if (adds)
      add(written, at.buffer, at.offset, named);
  }

  void addLibrary() {
    Operation *op = unit.op;
    if (isa<nn::GatherOp, nn::ScatterAddOp>(op))
      return addRows(op);
    const size_t operands = op->getNumOperands();
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      add(read, operand, unit.operands[i]);
    if (unit.bias.kernel >= 0) { // the library adds it
      const KernelPlan &kernel = plan.units[unit.bias.kernel].kernel;
      add(read, op->getResult(0), unit.bias.from);
      return addTarget(kernel.targets.front());
    }
    for (auto [i, result] : llvm::enumerate(op->getResults())) {
      add(written, result, unit.operands[operands + i]);
      if (unit.accumulate)
        add(read, result, unit.operands[operands + i]);
    }
  }

  const TaskPlan &plan;
  const Unit &unit;
  Places read, written;
};
} // namespace

Traffic fusion::trafficOf(const TaskPlan &plan, const Unit &unit) {
  return Counter(plan, unit).run();
}

int fusion::walksOf(const KernelPlan &kernel) {
  const Group &group = *kernel.group;
  Phases phases(group);
  int walks = 1;
  for (const auto *reductions :
       {&kernel.nest.rowReductions, &kernel.nest.columnReductions})
    for (nn::ReduceOp op : *reductions)
      walks = std::max(walks, phases.of(op.getX()) + 1);
  for (const Target &target : kernel.targets) {
    const auto *map = group.maps.find(target.value);
    if (map != group.maps.end() &&
        flatten(map->second).size() == group.extents.size())
      walks = std::max(walks, phases.of(target.value) + 1);
  }
  return walks;
}
