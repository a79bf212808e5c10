//===- PlainKernel.h - device functions written by hand --------*- C++ -*-===//
//
// Copies, rows by index, pooling windows and attention: kernels that come from
// no group.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/target/cuda/EmitKernel.h"
#include "compiler/target/cuda/Threads.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace pipec::cuda {

/// The argument that takes the record of an index out of range
/// (PipecDevice::fault), in place of a buffer.
constexpr int kFaultBuffer = -1;
/// The frame's number of the update.
constexpr int kUpdateBuffer = -2;

/// A device function under construction, with short forms for index
/// arithmetic in i64.
class PlainKernel {
public:
  using Value = mlir::Value;
  using Type = mlir::Type;

  PlainKernel(mlir::ModuleOp module, llvm::StringRef name,
              llvm::ArrayRef<fusion::KernelArgument> arguments);
  /// One thread each for `total` items; what follows is emitted for those below
  /// it. Returns the item's number.
  Value beginItems(int64_t total, int64_t threads = 256);
  /// `blocks` blocks without guards.
  void beginBlocks(int64_t blocks, int64_t threads);
  /// So many blocks at a time: ptxas keeps to the registers that leaves them.
  void setLeastBlocks(int64_t blocks);
  KernelCode finish();

  Value argument(int i) { return code.function.getArgument(i); }
  Value integer(int64_t value) {
    return mlir::arith::ConstantIntOp::create(b, value, 64);
  }
  Value add(Value x, Value y) { return mlir::arith::AddIOp::create(b, x, y); }
  Value times(Value x, int64_t factor);
  Value wide(Value word);
  Value less(Value x, int64_t end); // as unsigned numbers
  Value equal(Value x, Value y);
  Value both(Value x, Value y) { return mlir::arith::AndIOp::create(b, x, y); }
  Value select(Value condition, Value x, Value y) {
    return mlir::arith::SelectOp::create(b, condition, x, y);
  }
  /// Splits a number by sizes, row-major.
  llvm::SmallVector<Value> indices(Value number, llvm::ArrayRef<int64_t> sizes);
  Value pointer(Value base, Type element, Value index);
  Value load(Value base, Type element, Value index, int64_t alignment = 0);
  void store(Value value, Value base, Value index, int64_t alignment = 0);
  void when(Value condition, llvm::function_ref<void()> body);
  /// for i in [0, n): values = body(i, values).
  using Values = llvm::SmallVector<Value>;
  Values loop(Value begin, Value end, int64_t step, Values values,
              llvm::function_ref<void(Value, Values &)> body);

  mlir::ImplicitLocOpBuilder b;
  KernelCode code;
};

/// dst[i . to.strides] = src[i . from.strides] for all i below `shape`.
KernelCode emitCopyKernel(mlir::ModuleOp module, llvm::StringRef name,
                          llvm::ArrayRef<int64_t> shape,
                          const fusion::Placement &from,
                          const fusion::Placement &to, mlir::Type element,
                          llvm::ArrayRef<fusion::Buffer> buffers);

/// The gaps behind `rows` rows of the place's buffer = 0 (EmitCopy.cpp).
KernelCode emitGapKernel(mlir::ModuleOp module, llvm::StringRef name,
                         int64_t rows, const fusion::Placement &place,
                         mlir::Type element,
                         llvm::ArrayRef<fusion::Buffer> buffers);

/// The kernel of a gather or scatter_add; `places` are operands, then results
/// (EmitRows.cpp). A scatter_add adds to what its result's place holds.
mlir::FailureOr<KernelCode>
emitRowsKernel(mlir::ModuleOp module, llvm::StringRef name, mlir::Operation *op,
               llvm::ArrayRef<fusion::Placement> places,
               llvm::ArrayRef<fusion::Buffer> buffers);

/// The kernel of a pooling op or its gradient (EmitWindow.cpp).
mlir::FailureOr<KernelCode>
emitWindowKernel(mlir::ModuleOp module, llvm::StringRef name,
                 mlir::Operation *op, llvm::ArrayRef<fusion::Placement> places);

/// Whether there are kernels for an nn.attention or gradient of these types and
/// sizes; and one of them (EmitAttention.cpp).
constexpr int64_t kMostHeadSize = 128;
bool hasAttentionKernel(mlir::Operation *op);
KernelCode emitAttentionKernel(mlir::ModuleOp module, llvm::StringRef name,
                               mlir::Operation *op,
                               llvm::ArrayRef<fusion::Placement> places,
                               llvm::ArrayRef<fusion::Buffer> buffers);

/// *to = the frame's i64 at `from` as f64.
KernelCode emitScalarKernel(mlir::ModuleOp module, llvm::StringRef name,
                            const fusion::KernelArgument &from,
                            const fusion::KernelArgument &to);

/// The argument of what a value is placed at.
fusion::KernelArgument argumentOf(const fusion::Placement &place,
                                  mlir::Type element);
/// Its first byte within the region that it is in.
inline int64_t startOf(const fusion::KernelArgument &argument,
                       llvm::ArrayRef<fusion::Buffer> buffers) {
  return buffers[argument.buffer].offset + argument.byteOffset;
}

} // namespace pipec::cuda
