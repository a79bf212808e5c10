//===- StageCode.cpp - a stage program's code on a GPU --------------------===//
#include "runtime/device/cuda/StageCode.h"
#include "runtime/CallNames.h"
#include "support/Environment.h"
#include "support/Failure.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <type_traits>
#include <utility>

namespace pipec::cuda {
namespace {

const void *need(void *library, const std::string &path,
                 const std::string &name) {
  if (const void *found = dlsym(library, name.c_str()))
    return found;
  throw Failure(Exit::BadPlan, path + ": has no " + name +
                                   ", it is no program for GPUs; compile the "
                                   "model again");
}

template <typename T>
T exported(void *library, const std::string &path, const std::string &name) {
  T value;
  std::memcpy(&value, need(library, path, name), sizeof value);
  return value;
}

} // namespace

template <typename Name, typename Call, typename How>
void Gpu::StageCode::guarded(int32_t dtype, Name name, Call call, How how) {
  if (failure)
    return;
  const bool isTimed = gpu.callTimes && gpu.mode == Direct;
  auto full = [&] {
    const std::string algorithm = how();
    return name() + (algorithm.empty() ? "" : ", " + algorithm);
  };
  bool waits = false;
  try {
    if (isTimed)
      gpu.callTimes->before();
    if constexpr (std::is_void_v<decltype(call())>)
      call();
    else if (!call()) {
      if (isTimed)
        gpu.callTimes->forget();
      return;
    }
    if (isTimed)
      gpu.callTimes->after(full());
    waits = gpu.syncsCalls && gpu.mode == Direct;
    if (waits)
      gpu.waitForStream();
    waits = false;
    if (gpu.callSums && gpu.isFirstStep())
      gpu.callSums->after(name(), dtype, gpu.reader());
    gpu.called();
  } catch (const Alarmed &) { // it has not failed itself
    failure = std::current_exception();
  } catch (const Failure &said) {
    // What the device has found wrong may be of a call before, or of another
    // queue, which nobody waits for.
    failure = std::make_exception_ptr(Failure(
        said.code, std::string(said.what()) +
                       (waits ? "; the call is " : "; at the call ") + full()));
  } catch (...) {
    failure = std::current_exception();
  }
}

bool Gpu::StageCode::multiplyBiased(const PipecMatmul &shape, const char *a,
                                    const char *b, const char *bias, char *c) {
  bool adds = false;
  try {
    adds = !failure && gpu.products->addsBias(shape, a, b, bias, c);
  } catch (...) {
    failure = std::current_exception();
  }
  if (!adds)
    return false;
  guarded(
      shape.wide ? PIPEC_F32 : shape.dtype,
      [&] { return callName(shape) + " + bias"; },
      [&] {
        adds = gpu.products->multiplyBiased(shape, a, b, bias, c);
        if (adds)
          gpu.called(); // the first of the two that it stands for
        return adds;    // else those two are still to come
      });
  return adds;
}

bool Gpu::StageCode::attend(const PipecAttention &shape, char *const *at) {
  bool attends = false;
  try {
    attends = !failure && gpu.attention->attends(shape);
  } catch (...) {
    failure = std::current_exception();
  }
  if (!attends)
    return false;
  guarded(
      PIPEC_BF16, [&] { return callName(shape); },
      [&] {
        gpu.attention->attend(shape, at);
        for (int32_t saved = 1; saved < shape.calls; ++saved)
          gpu.called();
      });
  return true;
}

void Gpu::StageCode::rethrow() {
  if (failure)
    std::rethrow_exception(std::exchange(failure, nullptr));
}

/// What is wrong with an image, in the driver's words; empty when it is loaded.
static std::string load(const Driver &cuda, const void *image, Module &module) {
  char log[2048] = "";
  const int options[] = {kJitErrors, kJitErrorBytes};
  void *values[] = {log, reinterpret_cast<void *>(sizeof log)};
  const int result = cuda.loadModule(&module, image, 2, options, values);
  if (!result)
    return "";
  log[sizeof log - 1] = 0;
  std::string text = log;
  text.erase(text.find_last_not_of(" \n") + 1);
  return cuda.describe(result) + (text.empty() ? "" : ": " + text);
}

/// Machine code of the chip's generation, else PTX, which the driver
/// translates.
Module Gpu::loadCode(void *library, const std::string &path) {
  const std::string own = "pipec_cubin_" + std::to_string(major * 10);
  const bool wantsPtx = isWished("PIPEC_GPU_CODE", "ptx");
  const void *cubin = wantsPtx ? nullptr : dlsym(library, own.c_str());
  Module module = nullptr;
  std::string wrong;
  if (cubin) {
    wrong = load(cuda, cubin, module);
    if (wrong.empty())
      return module;
  }
  const std::string inPtx =
      load(cuda, need(library, path, "pipec_ptx"), module);
  const std::string chip = "GPU " + std::to_string(ordinal) +
                           " (compute capability " + std::to_string(major) +
                           "." + std::to_string(minor) + ")";
  if (!inPtx.empty())
    throw Failure(
        Exit::Unavailable,
        path + ": " + chip + " does not take its code: " + inPtx +
            (wrong.empty() ? "" : " in PTX, " + wrong + " in machine code") +
            "; code is for 8.0 and newer, with a driver as new as the toolkit "
            "that made it");
  isPtx = true;
  if (!wantsPtx)
    whyPtx = chip + " runs what the driver makes of PTX: " +
             (cubin ? "of the machine code in " + path + " it says " + wrong
                    : path + " has no machine code for it");
  return module;
}

Gpu::StageCode::StageCode(Gpu &gpu, void *library, const std::string &path)
    : table(), gpu(gpu), path(path), module(gpu.loadCode(library, path)) {
  const Driver &cuda = gpu.cuda;
  const auto count = exported<int32_t>(library, path, "pipec_kernel_count");
  for (int32_t i = 0; i < count; ++i)
    kernels.push_back(function(("kernel" + std::to_string(i)).c_str()));
  const auto bytes = exported<int64_t>(library, path, "pipec_literals_bytes");
  cuda.check(cuda.allocate(&literals, static_cast<size_t>(bytes) + 64),
             "cuMemAlloc");
  const auto *from =
      static_cast<const char *>(need(library, path, "pipec_literals"));
  gpu.upload(reinterpret_cast<char *>(literals), from, bytes);
  table.literals = reinterpret_cast<char *>(literals);
  table.fault = reinterpret_cast<char *>(gpu.faults);
  table.row_bytes = gpu.rowBytes;
  table.launch = [](PipecDevice *table, int32_t kernel, int64_t blocks,
                    int32_t threads, int32_t sharedBytes,
                    char *const *arguments, int32_t count) {
    StageCode &self = of(table);
    auto name = [&] {
      return self.path.substr(self.path.rfind('/') + 1) + " kernel" +
             std::to_string(kernel) + " of " + std::to_string(blocks) + " x " +
             std::to_string(threads);
    };
    self.guarded(PIPEC_F32, name, [&] {
      self.places.clear();
      for (int32_t i = 0; i < count; ++i)
        self.places.push_back(const_cast<char **>(&arguments[i]));
      self.allow(kernel, sharedBytes);
      self.gpu.launch(self.gpu.compute,
                      self.kernels[static_cast<size_t>(kernel)], blocks,
                      threads, sharedBytes, self.places.data());
    });
  };
  table.matmul = [](PipecDevice *table, const PipecMatmul *shape, const char *a,
                    const char *b, char *c) {
    StageCode &self = of(table);
    self.guarded(
        shape->wide ? PIPEC_F32 : shape->dtype,
        [&] { return callName(*shape); },
        [&] { self.gpu.products->multiply(*shape, a, b, c); });
  };
  table.biased = [](PipecDevice *table, const PipecMatmul *shape, const char *a,
                    const char *b, const char *bias, char *c) -> int32_t {
    return of(table).multiplyBiased(*shape, a, b, bias, c);
  };
  table.attention = [](PipecDevice *table, const PipecAttention *shape,
                       char *const *at) -> int32_t {
    return of(table).attend(*shape, at);
  };
  table.conv = [](PipecDevice *table, const PipecConv *shape, int32_t kind,
                  const char *first, const char *second, char *result) {
    StageCode &self = of(table);
    Convolutions &dnn = *self.gpu.convolutions;
    const bool isWide =
        shape->dtype == PIPEC_BF16 && kind == PIPEC_CONV_BACKWARD_WEIGHT;
    self.guarded(
        isWide ? PIPEC_F32 : shape->dtype,
        [&] { return callName(*shape, kind); },
        [&] { dnn.convolve(*shape, kind, first, second, result); },
        [&] { return dnn.chosen(*shape, kind); });
  };
  table.clear = [](PipecDevice *table, char *at, int64_t bytes) {
    StageCode &self = of(table);
    self.guarded(
        PIPEC_F32, [&] { return "clear " + std::to_string(bytes); },
        [&] { self.gpu.clear(at, bytes); });
  };
}

/// More shared memory than a kernel has without asking is asked for once.
void Gpu::StageCode::allow(int32_t kernel, int32_t sharedBytes) {
  if (sharedBytes <= kSharedLimit || !allowed.insert(kernel).second)
    return;
  const Driver &cuda = gpu.cuda;
  const Function function = kernels[static_cast<size_t>(kernel)];
  cuda.check(cuda.functionAttribute(function, kMostShared, sharedBytes),
             "cuFuncSetAttribute");
  cuda.check(cuda.functionAttribute(function, kSharedShare, 100),
             "cuFuncSetAttribute");
}

Gpu::StageCode::~StageCode() {
  gpu.cuda.release(literals);
  gpu.cuda.unloadModule(module);
}

Function Gpu::StageCode::function(const char *name) const {
  Function found = nullptr;
  if (gpu.cuda.function(&found, module, name))
    throw Failure(Exit::BadPlan, path + ": its code has no function " + name +
                                     "; compile the model again");
  return found;
}

} // namespace pipec::cuda
