//===- Threads.h - threads, warps and blocks -------------------*- C++ -*-===//
//
// The few things that device code says which host code cannot.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace pipec::cuda {

constexpr int64_t kWarp = 32;

/// A number as i32, and one of i32 as i64.
mlir::Value word(mlir::ImplicitLocOpBuilder &b, int64_t number);
mlir::Value wide(mlir::ImplicitLocOpBuilder &b, mlir::Value number);
/// The thread's and the block's number, as i32.
mlir::Value threadNumber(mlir::ImplicitLocOpBuilder &b);
mlir::Value blockNumber(mlir::ImplicitLocOpBuilder &b);
/// block * threads + thread as i32: fewer than 2^31.
mlir::Value globalThread(mlir::ImplicitLocOpBuilder &b, int64_t threads);
/// Waits for all threads of the block, whose memory accesses are then done.
void barrier(mlir::ImplicitLocOpBuilder &b);
/// `value` of the thread whose number within the warp differs in `bits`. Any
/// scalar type.
mlir::Value shuffleXor(mlir::ImplicitLocOpBuilder &b, mlir::Value value,
                       int64_t bits);
/// The address of a byte of the block's shared memory.
mlir::Value sharedMemory(mlir::ImplicitLocOpBuilder &b, int64_t offset);
/// Begins to copy so many bytes of global memory to shared memory: 4 or 16, of
/// which `read`, where it is given, are from there and the rest zero.
void copyAhead(mlir::ImplicitLocOpBuilder &b, mlir::Value to, mlir::Value from,
               int64_t bytes, mlir::Value read = {});
/// Until what the thread has begun to copy is there.
void waitForCopies(mlir::ImplicitLocOpBuilder &b);

} // namespace pipec::cuda
