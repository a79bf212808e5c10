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

int64_t slicesOf(ModuleOp module) {
  auto attr = module->getAttrOfType<IntegerAttr>(kSlices);
  return attr ? attr.getInt() : 1;
}

int64_t stageOf(Operation *op) {
  auto attr = op->getAttrOfType<IntegerAttr>(kOpStage);
  return attr ? attr.getInt() : -1;
}

static bool isOfPhase(Operation *op, StringRef name) {
  auto phase = op->getAttrOfType<StringAttr>(kOpPhase);
  return phase && phase.getValue() == name;
}

bool isBackward(Operation *op) { return isOfPhase(op, "backward"); }
bool isEarly(Operation *op) { return isOfPhase(op, "early"); }

void makeEarly(Operation *op) {
  op->setAttr(kOpPhase, StringAttr::get(op->getContext(), "early"));
}

Sources::Sources(func::FuncOp main) {
  for (Operation &op : main.front())
    contains(&op);
}

bool Sources::contains(Operation *op) {
  if (auto it = known.find(op); it != known.end())
    return it->second;
  bool source =
      op->getNumResults() > 0 && llvm::all_of(op->getOperands(), [&](Value v) {
        Operation *def = v.getDefiningOp();
        return def && contains(def);
      });
  return known[op] = source;
}

SmallVector<Operation *> modelNodes(func::FuncOp main) {
  SmallVector<Operation *> nodes;
  Sources sources(main);
  for (Operation &op : main.front().without_terminator())
    if (!isBackward(&op) && !isEarly(&op) && !sources.contains(&op))
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

llvm::DenseSet<Value> activeValues(func::FuncOp main) {
  SymbolTable parameters(main->getParentOfType<ModuleOp>());
  llvm::DenseSet<Value> active;
  for (Operation &op : main.front()) {
    if (isBackward(&op))
      continue;
    bool on = false;
    if (auto weight = dyn_cast<nn::WeightOp>(op))
      on =
          parameters.lookup<nn::ParameterOp>(weight.getParameter()).isTrained();
    else if (!isa<nn::StopGradientOp>(op))
      on = llvm::any_of(op.getOperands(),
                        [&](Value v) { return active.contains(v); });
    for (Value v : op.getResults())
      if (on && nn::isFloat(v))
        active.insert(v);
  }
  return active;
}

std::string nodeName(Operation *op) {
  if (std::string name = locationName(op->getLoc()); !name.empty())
    return name;
  // Of no node, as a gradient's 0: named after what reads it.
  for (Operation *user : op->getUsers())
    if (std::string name = locationName(user->getLoc()); !name.empty())
      return name;
  return op->getName().getStringRef().str();
}

} // namespace pipec
