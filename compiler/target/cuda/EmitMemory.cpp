//===- EmitMemory.cpp - what a device function loads and stores -----------===//
#include "compiler/target/cuda/KernelEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;

/// Whether all points of the access start at a multiple of `width` elements.
bool KernelEmitter::isAligned(const Access &access) const {
  const KernelArgument &argument = arguments[access.argument];
  int64_t bytes = width * elementBytes(access.element);
  if ((buffers[argument.buffer].offset + argument.byteOffset) % bytes)
    return false;
  return llvm::all_of(access.strides.drop_back(),
                      [&](int64_t stride) { return stride % width == 0; });
}

Value KernelEmitter::lanePointer(const Access &access, Value pointer,
                                 int64_t lane) {
  if (lane == 0)
    return pointer;
  return advance(pointer, access.element,
                 integer(lane * access.strides.back()));
}

/// One access of up to 16 bytes where lanes lie side by side and aligned; else
/// one a lane.
Value KernelEmitter::loadAt(const Access &access, Value extra) {
  int64_t stride = access.strides.back();
  Value pointer = advance(pointerAt(access), access.element, extra);
  Type memory = memoryType(access.element);
  int64_t bytes = elementBytes(access.element);
  if (stride == 0 || width == 1)
    return fromMemory(LLVM::LoadOp::create(b, memory, pointer, bytes),
                      access.element);
  Type type = laneType(memory);
  if (stride == 1 && isAligned(access))
    return fromMemory(LLVM::LoadOp::create(b, type, pointer, width * bytes),
                      access.element);
  SmallVector<Value> lanes;
  for (int64_t i = 0; i < width; ++i)
    lanes.push_back(LLVM::LoadOp::create(
        b, memory, lanePointer(access, pointer, i), bytes));
  return fromMemory(
      vector::FromElementsOp::create(b, cast<VectorType>(type), lanes),
      access.element);
}

void KernelEmitter::storeAt(const Access &access, Value value) {
  int64_t stride = access.strides.back();
  Value pointer = pointerAt(access);
  int64_t bytes = elementBytes(access.element);
  value = toMemory(stride == 0 ? value : spread(value));
  if (stride == 0 || width == 1) {
    LLVM::StoreOp::create(b, value, pointer, bytes);
    return;
  }
  if (stride == 1 && isAligned(access)) {
    LLVM::StoreOp::create(b, value, pointer, width * bytes);
    return;
  }
  for (int64_t i = 0; i < width; ++i)
    LLVM::StoreOp::create(b, vector::ExtractOp::create(b, value, i),
                          lanePointer(access, pointer, i), bytes);
}
