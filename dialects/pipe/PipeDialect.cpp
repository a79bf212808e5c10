//===- PipeDialect.cpp - the pipe dialect ---------------------------------===//
#include "dialects/pipe/Pipe.h"

#include "mlir/IR/Builders.h"
#include "runtime/StageAbi.h"

using namespace mlir;
using namespace pipec::pipe;

#include "dialects/pipe/PipeDialect.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/pipe/PipeOps.cpp.inc"

void PipeDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/pipe/PipeOps.cpp.inc"
      >();
}

static constexpr llvm::StringRef kRegions[] = {
    "workspace", "constants", "weights", "new_weights",
    "gradients", "optimizer", "state",   "stats",
    "in",        "stash",     "out",     "grad_in",
    "grad_out",  "wstash",    "loss",    "outputs"};
static_assert(std::size(kRegions) == PIPEC_REGION_COUNT);

ArrayRef<StringRef> pipec::pipe::regionNames() { return kRegions; }
int pipec::pipe::regionIndex(StringRef region) {
  const auto *it = llvm::find(kRegions, region);
  return it == std::end(kRegions) ? -1 : it - std::begin(kRegions);
}

static LogicalResult verifyPlace(Operation *op, StringRef region,
                                 int64_t offset) {
  if (regionIndex(region) < 0)
    return op->emitOpError("has an unknown region '") << region << "'";
  if (offset < 0 || offset % 64 != 0)
    return op->emitOpError("needs an offset that is a multiple of 64");
  return success();
}

LogicalResult LoadOp::verify() {
  return verifyPlace(*this, getRegion(), getOffset());
}
LogicalResult StoreOp::verify() {
  return verifyPlace(*this, getRegion(), getOffset());
}
LogicalResult ScalarOp::verify() {
  bool real =
      llvm::is_contained({"lr_factor", "grad_scale", "update"}, getName());
  if (!real && !llvm::is_contained({"seed", "step", "microbatch"}, getName()))
    return emitOpError("has an unknown name '") << getName() << "'";
  auto type = cast<RankedTensorType>(getY().getType());
  Type element = type.getElementType();
  if (type.getRank() != 0 ||
      !(real ? element.isF64() : element.isSignlessInteger(64)))
    return emitOpError(real ? "is a tensor<f64>" : "is a tensor<i64>");
  return success();
}

void LoadOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &e) {
  e.emplace_back(MemoryEffects::Read::get());
}
void StoreOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &e) {
  e.emplace_back(MemoryEffects::Write::get());
}
