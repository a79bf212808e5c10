//===- StageCode.h - a stage program's code on a GPU ------------*- C++ -*-===//
#pragma once

#include "runtime/device/cuda/Gpu.h"

#include <exception>
#include <set>

namespace pipec::cuda {

/// The table that the host part of a stage calls, and the module behind it.
struct Gpu::StageCode {
  /// Loads the code for the GPU's chip. Failure(BadPlan, Unavailable).
  StageCode(Gpu &gpu, void *library, const std::string &path);
  ~StageCode();
  StageCode(const StageCode &) = delete;

  /// Failure(BadPlan) when the code has no such function.
  Function function(const char *name) const;

  /// The first failure of a call since the last time. Stage programs are C:
  /// nothing is thrown through them.
  void rethrow();

  PipecDevice table; ///< first: the host part has its address

private:
  static StageCode &of(PipecDevice *table) {
    return *reinterpret_cast<StageCode *>(table);
  }
  /// `name()`: what the call is, and `how()` by which algorithm, once it is
  /// queued; for errors and for times of it. `dtype`: of its result, as far as
  /// that is known. `call()` may say by false that it has queued nothing.
  template <typename Name, typename Call, typename How>
  void guarded(int32_t dtype, Name name, Call call, How how);
  template <typename Name, typename Call>
  void guarded(int32_t dtype, Name name, Call call) {
    guarded(dtype, name, call, [] { return std::string(); });
  }
  /// PipecDevice::biased.
  bool multiplyBiased(const PipecMatmul &shape, const char *a, const char *b,
                      const char *bias, char *c);
  /// PipecDevice::attention.
  bool attend(const PipecAttention &shape, char *const *at);

  /// So much shared memory for a kernel.
  void allow(int32_t kernel, int32_t sharedBytes);

  Gpu &gpu;
  std::string path;
  Module module = nullptr;
  std::vector<Function> kernels;
  std::set<int32_t> allowed; ///< those that have asked for shared memory
  Address literals = 0;
  std::vector<void *> places; ///< of a kernel's arguments
  std::exception_ptr failure;
};

} // namespace pipec::cuda
