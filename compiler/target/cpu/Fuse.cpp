//===- Fuse.cpp - which ops become one kernel -----------------------------===//
#include "compiler/target/cpu/Plan.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cpu;

std::vector<Group> cpu::formGroups(func::FuncOp func, const PlanOptions &) {
  std::vector<Group> groups;
  for (Operation &op : func.getBody().front())
    if (isGenerated(&op))
      groups.push_back(Group::ofOp(&op));
  return groups;
}
