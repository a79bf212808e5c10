//===- Driver.h - libcuda ---------------------------------------*- C++ -*-===//
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pipec::cuda {

// Handles of the driver; every one of them is a pointer to it.
using Context = struct ContextHandle *;
using Stream = struct StreamHandle *;
using Event = struct EventHandle *;
using Module = struct ModuleHandle *;
using Function = struct FunctionHandle *;
using Graph = struct GraphHandle *;
using GraphExec = struct GraphExecHandle *;
using Address = unsigned long long;

// Its numbers, as far as they are used.
constexpr int kOutOfMemory = 2, kNotReady = 600;
constexpr int kComputeMajor = 75, kComputeMinor = 76; ///< device attributes
/// Of shared memory: a multiprocessor's, what a block may have of it if it is
/// asked for, and what of that the driver has.
constexpr int kSharedOfAll = 81, kSharedOfBlock = 97, kSharedOfDriver = 111;
constexpr int kMostShared = 8, kSharedShare = 9; ///< attributes of a function
constexpr unsigned kNonBlocking = 1;                  ///< of a stream
constexpr unsigned kNoTiming = 2;                     ///< of an event
constexpr unsigned kExternal = 1; ///< recording: also when it is captured
constexpr int kRelaxed = 2;       ///< capture: any thread may go on
constexpr unsigned kPortable = 1; ///< host memory for all contexts
/// A graph's kernels run at the priorities of the streams that they were
/// recorded from, not at that of the stream that it is launched on.
constexpr unsigned long long kNodePriorities = 8;
constexpr int kJitErrors = 5, kJitErrorBytes = 6; ///< options of loading code

inline Address addressOf(const void *pointer) {
  return reinterpret_cast<Address>(pointer);
}

/// The entry points of libcuda, opened at the first call.
struct Driver {
#define ENTRY(name, symbol, parameters) int(*name) parameters = nullptr;
#include "runtime/device/cuda/Driver.def"

  /// Failure(Unavailable): no driver, no GPU, or too old a driver.
  static const Driver &get();

  /// Throws for a result that is no success: Failure(NoFit) when memory was
  /// asked for, else Failure(Unavailable). `what`: the call, for the message.
  void check(int result, const char *what) const;
  /// "CUDA_ERROR_INVALID_VALUE (invalid argument)".
  std::string describe(int result) const;

  int devices = 0;
};

} // namespace pipec::cuda
