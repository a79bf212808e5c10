//===- EmitMemory.cpp - what a kernel loads and stores --------------------===//
#include "compiler/target/cpu/KernelEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cpu;
using namespace pipec::fusion;

/// Pointers of the lanes of a strided access.
Value KernelEmitter::lanePointers(Value pointer, Type element, int64_t stride) {
  SmallVector<int64_t> steps;
  for (int64_t i = 0; i < width; ++i)
    steps.push_back(i * stride);
  auto type = VectorType::get({width}, b.getI64Type());
  Value offsets = arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, ArrayRef<int64_t>(steps)));
  return LLVM::GEPOp::create(b, VectorType::get({width}, pointerType),
                             memoryType(element), pointer,
                             ArrayRef<LLVM::GEPArg>{offsets});
}

/// The elements at the current point; `extra` is added to the address.
Value KernelEmitter::loadAt(const Access &access, Value extra) {
  int64_t stride = access.strides.back();
  Value pointer = advance(pointerAt(access), access.element, extra);
  Type memory = memoryType(access.element), type = laneType(memory);
  unsigned alignment = elementBytes(access.element);
  Value loaded;
  if (stride == 0 || width == 1)
    loaded = LLVM::LoadOp::create(b, memory, pointer, alignment);
  else if (stride != 1)
    loaded = LLVM::masked_gather::create(
        b, type, lanePointers(pointer, access.element, stride),
        mask ? mask : allLanes(), ValueRange{zeros(type)},
        b.getI32IntegerAttr(alignment));
  else if (mask)
    loaded =
        LLVM::MaskedLoadOp::create(b, type, pointer, mask, zeros(type),
                                   b.getI32IntegerAttr(alignment), UnitAttr());
  else
    loaded = LLVM::LoadOp::create(b, type, pointer, alignment);
  return fromMemory(loaded, access.element);
}

void KernelEmitter::storeAt(const Access &access, Value value) {
  int64_t stride = access.strides.back();
  Value pointer = pointerAt(access);
  unsigned alignment = elementBytes(access.element);
  value = toMemory(stride == 0 ? value : spread(value));
  if (stride == 0 || width == 1)
    LLVM::StoreOp::create(b, value, pointer, alignment);
  else if (stride != 1)
    LLVM::masked_scatter::create(
        b, value, lanePointers(pointer, access.element, stride),
        mask ? mask : allLanes(), b.getI32IntegerAttr(alignment));
  else if (mask)
    LLVM::MaskedStoreOp::create(b, value, pointer, mask,
                                b.getI32IntegerAttr(alignment));
  else
    LLVM::StoreOp::create(b, value, pointer, alignment);
}
