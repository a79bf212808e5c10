//===- CallList.cpp - the calls of a stage as a table ---------------------===//
#include "compiler/target/cuda/CallList.h"
#include "compiler/target/fusion/Traffic.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;

static std::string locationName(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().str();
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location part : fused.getLocations())
      if (std::string name = locationName(part); !name.empty())
        return name;
  return "";
}

static std::string nameOf(Operation *op) {
  std::string name = op->getName().stripDialect().str();
  if (auto reduce = dyn_cast<nn::ReduceOp>(op))
    name += "." + reduce.getKind().str();
  return name;
}

/// "add exp*2", with what is there once and in this order.
static std::string counted(ArrayRef<std::string> names) {
  llvm::MapVector<StringRef, int> times;
  for (const std::string &name : names)
    if (!name.empty())
      ++times[name];
  std::string text;
  for (auto [name, count] : times)
    text += (text.empty() ? "" : " ") + name.str() +
            (count > 1 ? "*" + std::to_string(count) : "");
  return text.empty() ? "-" : text;
}

static SmallVector<Operation *> opsOf(const Unit &unit) {
  SmallVector<Operation *> ops;
  if (unit.kind == Unit::Kernel)
    llvm::append_range(ops, unit.kernel.group->ops);
  if (ops.empty() && unit.op)
    ops.push_back(unit.op);
  return ops;
}

void CallList::add(const TaskPlan &plan, ArrayRef<const Unit *> units,
                   const std::string &call, int64_t blocks, int64_t threads,
                   bool isHeld) {
  SmallVector<std::string> names, nodes;
  Traffic traffic;
  int64_t flops = 0;
  int walks = 1;
  for (const Unit *unit : units) {
    for (Operation *op : opsOf(*unit)) {
      names.push_back(nameOf(op));
      if (std::string node = locationName(op->getLoc());
          !llvm::is_contained(nodes, node))
        nodes.push_back(node);
    }
    if (unit->kind == Unit::Copy)
      names = {"copy"};
    const Traffic own = trafficOf(plan, *unit);
    traffic.read += own.read, traffic.written += own.written;
    if (unit->kind == Unit::Kernel && !isHeld)
      walks = std::max(walks, walksOf(unit->kernel));
    if (auto costed = dyn_cast_or_null<nn::Costed>(unit->op);
        costed && unit->kind == Unit::Library && costed.isContraction())
      flops += costed.flops();
  }
  llvm::raw_string_ostream(lines)
      << plan.name << '\t' << call << '\t' << blocks << '\t' << threads << '\t'
      << traffic.read << '\t' << traffic.written << '\t' << walks << '\t'
      << flops << '\t' << counted(names) << '\t' << counted(nodes) << '\n';
}

void CallList::addClear(const std::string &task, const std::string &call,
                        int64_t blocks, int64_t threads, int64_t bytes) {
  llvm::raw_string_ostream(lines)
      << task << '\t' << call << '\t' << blocks << '\t' << threads << "\t0\t"
      << bytes << "\t1\t0\t-\t-\n";
}
