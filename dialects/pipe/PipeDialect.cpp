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

SmallVector<int64_t> pipec::pipe::placeStrides(Type type, int64_t pitch) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(type).getShape();
  SmallVector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;)
    strides[d - 1] = d + 1 == shape.size() && pitch
                         ? pitch
                         : strides[d] * std::max<int64_t>(shape[d], 1);
  return strides;
}

int64_t pipec::pipe::placeBytes(Type type, int64_t pitch) {
  auto tensor = cast<RankedTensorType>(type);
  int64_t elements = tensor.getNumElements();
  if (pitch && elements)
    elements = elements / tensor.getShape().back() * pitch;
  return elements *
         llvm::divideCeil(tensor.getElementType().getIntOrFloatBitWidth(), 8);
}

SmallVector<int64_t> LoadOp::strides() {
  return placeStrides(getY().getType(), getPitch());
}
SmallVector<int64_t> StoreOp::strides() {
  return placeStrides(getX().getType(), getPitch());
}
int64_t LoadOp::bytes() { return placeBytes(getY().getType(), getPitch()); }
int64_t StoreOp::bytes() { return placeBytes(getX().getType(), getPitch()); }

static LogicalResult verifyPlace(Operation *op, StringRef region,
                                 int64_t offset, Type type, int64_t pitch) {
  if (regionIndex(region) < 0)
    return op->emitOpError("has an unknown region '") << region << "'";
  if (offset < 0 || offset % 64 != 0)
    return op->emitOpError("needs an offset that is a multiple of 64");
  auto tensor = cast<RankedTensorType>(type);
  if (pitch && (tensor.getRank() < 2 || pitch < tensor.getShape().back()))
    return op->emitOpError("needs a pitch of at least a row of ")
           << type << ", got " << pitch;
  return success();
}

LogicalResult LoadOp::verify() {
  return verifyPlace(*this, getRegion(), getOffset(), getY().getType(),
                     getPitch());
}
LogicalResult StoreOp::verify() {
  return verifyPlace(*this, getRegion(), getOffset(), getX().getType(),
                     getPitch());
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
