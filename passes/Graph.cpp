//===- Graph.cpp - questions passes ask of @main --------------------------===//
#include "passes/Graph.h"

using namespace mlir;

namespace pipec {

func::FuncOp mainFunction(ModuleOp module) {
  auto main = module.lookupSymbol<func::FuncOp>("main");
  if (!main)
    module.emitError("has no function @main");
  return main;
}

int64_t stageOf(Operation *op) {
  auto attr = op->getAttrOfType<IntegerAttr>(kOpStage);
  return attr ? attr.getInt() : -1;
}

bool isBackward(Operation *op) { return op->hasAttr(kOpPhase); }

static bool isSourceRecursive(Operation *op,
                              llvm::SmallDenseMap<Operation *, bool> &known) {
  if (auto it = known.find(op); it != known.end())
    return it->second;
  bool source = op->getNumResults() > 0;
  for (Value v : op->getOperands()) {
    Operation *def = v.getDefiningOp();
    source = source && def && isSourceRecursive(def, known);
  }
  return known[op] = source;
}

bool isSource(Operation *op) {
  llvm::SmallDenseMap<Operation *, bool> known;
  return isSourceRecursive(op, known);
}

SmallVector<Operation *> modelNodes(func::FuncOp main) {
  SmallVector<Operation *> nodes;
  llvm::SmallDenseMap<Operation *, bool> known;
  for (Operation &op : main.front().without_terminator())
    if (!isBackward(&op) && !isSourceRecursive(&op, known))
      nodes.push_back(&op);
  return nodes;
}

static std::string locationName(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().str();
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location part : fused.getLocations())
      if (std::string name = locationName(part); !name.empty())
        return name;
  return "";
}

std::string nodeName(Operation *op) {
  std::string name = locationName(op->getLoc());
  return name.empty() ? op->getName().getStringRef().str() : name;
}

} // namespace pipec
