//===- StageCode.cpp - a stage program's code on a GPU --------------------===//
#include "runtime/device/cuda/StageCode.h"
#include "support/Failure.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
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

std::string nameOf(const PipecMatmul &shape) {
  int64_t count = 1;
  for (int32_t i = 0; i < shape.batch_rank; ++i)
    count *= shape.batch[i];
  return std::string("matmul ") +
         (shape.dtype == PIPEC_BF16  ? "bf16 "
          : shape.dtype == PIPEC_F64 ? "f64 "
                                     : "f32 ") +
         std::to_string(count) + " x " + std::to_string(shape.m) + " x " +
         std::to_string(shape.k) + " x " + std::to_string(shape.n) +
         (shape.transpose_a ? " a'" : "") + (shape.transpose_b ? " b'" : "");
}

std::string nameOf(const PipecConv &shape, int32_t kind) {
  std::string name = kind == PIPEC_CONV_FORWARD          ? "conv"
                     : kind == PIPEC_CONV_BACKWARD_INPUT ? "conv dx"
                                                         : "conv dw";
  name += " of " + std::to_string(shape.n) + " x " + std::to_string(shape.c);
  auto sizes = [&](const char *before, const int64_t *list) {
    for (int32_t i = 0; i < shape.spatial_rank; ++i)
      name += (i ? " x " : before) + std::to_string(list[i]);
  };
  sizes(" x ", shape.in);
  name += " to " + std::to_string(shape.o);
  sizes(" by ", shape.kernel);
  sizes(" stride ", shape.stride);
  return name;
}

} // namespace

template <typename Name, typename Call>
void Gpu::StageCode::guarded(Name name, Call call) {
  if (failure)
    return;
  const bool isTimed = gpu.callTimes && gpu.mode == Direct;
  try {
    if (isTimed)
      gpu.callTimes->before();
    call();
    if (isTimed)
      gpu.callTimes->after(name());
    gpu.called();
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
  guarded([&] { return nameOf(shape) + " + bias"; },
          [&] {
            gpu.products->multiplyBiased(shape, a, b, bias, c);
            gpu.called(); // the first of the two that it stands for
          });
  return true;
}

void Gpu::StageCode::rethrow() {
  if (failure)
    std::rethrow_exception(std::exchange(failure, nullptr));
}

/// Machine code of the chip's generation, else PTX, which the driver
/// translates.
Module Gpu::loadCode(void *library, const std::string &path) const {
  const std::string own = "pipec_cubin_" + std::to_string(major * 10);
  const void *cubin = dlsym(library, own.c_str());
  Module module = nullptr;
  int result = cubin ? cuda.loadModule(&module, cubin) : 1;
  if (result)
    result = cuda.loadModule(&module, need(library, path, "pipec_ptx"));
  if (result) {
    const char *name = "an unknown error";
    cuda.errorName(result, &name);
    throw Failure(Exit::Unavailable,
                  path + ": GPU " + std::to_string(ordinal) +
                      " (compute capability " + std::to_string(major) + "." +
                      std::to_string(minor) +
                      ") does not take its code: " + name +
                      "; code is for 8.0 and newer, with a driver as new as "
                      "the toolkit that made it");
  }
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
  table.launch = [](PipecDevice *table, int32_t kernel, int64_t blocks,
                    int32_t threads, int32_t sharedBytes,
                    char *const *arguments, int32_t count) {
    StageCode &self = of(table);
    auto name = [&] {
      return self.path.substr(self.path.rfind('/') + 1) + " kernel" +
             std::to_string(kernel) + " of " + std::to_string(blocks) + " x " +
             std::to_string(threads);
    };
    self.guarded(name, [&] {
      self.places.clear();
      for (int32_t i = 0; i < count; ++i)
        self.places.push_back(const_cast<char **>(&arguments[i]));
      self.gpu.launch(self.gpu.compute,
                      self.kernels[static_cast<size_t>(kernel)], blocks,
                      threads, sharedBytes, self.places.data());
    });
  };
  table.matmul = [](PipecDevice *table, const PipecMatmul *shape, const char *a,
                    const char *b, char *c) {
    StageCode &self = of(table);
    self.guarded([&] { return nameOf(*shape); },
                 [&] { self.gpu.products->multiply(*shape, a, b, c); });
  };
  table.biased = [](PipecDevice *table, const PipecMatmul *shape, const char *a,
                    const char *b, const char *bias, char *c) -> int32_t {
    return of(table).multiplyBiased(*shape, a, b, bias, c);
  };
  table.conv = [](PipecDevice *table, const PipecConv *shape, int32_t kind,
                  const char *first, const char *second, char *result) {
    StageCode &self = of(table);
    self.guarded([&] { return nameOf(*shape, kind); },
                 [&] {
                   self.gpu.convolutions->convolve(*shape, kind, first, second,
                                                   result);
                 });
  };
  table.clear = [](PipecDevice *table, char *at, int64_t bytes) {
    StageCode &self = of(table);
    self.guarded([&] { return "clear " + std::to_string(bytes); },
                 [&] { self.gpu.clear(at, bytes); });
  };
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
