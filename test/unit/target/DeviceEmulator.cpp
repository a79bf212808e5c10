//===- DeviceEmulator.cpp - GPU kernels on the processor ------------------===//
#include "test/unit/target/DeviceEmulator.h"
#include "runtime/kernels/cpu/Kernels.h"
#include "test/unit/target/Attend.h"
#include "test/unit/target/Convolve.h"
#include "test/unit/target/DeviceCode.h"
#include "test/unit/target/Fibers.h"
#include "test/unit/target/Multiply.h"

#include "llvm/Support/FileSystem.h"

#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::test;

namespace {
const char *symbol(void *library, const char *name) {
  auto *found = static_cast<const char *>(dlsym(library, name));
  EXPECT_NE(found, nullptr) << "the stage exports no " << name;
  return found;
}
} // namespace

DeviceEmulator::DeviceEmulator(const std::string &llvm, void *library) {
  int32_t count;
  std::memcpy(&count, symbol(library, "pipec_kernel_count"), sizeof count);
  kernels.resize(count);
  compile(llvm);
  int64_t bytes;
  std::memcpy(&bytes, symbol(library, "pipec_literals_bytes"), sizeof bytes);
  literals.assign(bytes + 64, 0);
  char *aligned = reinterpret_cast<char *>(
      llvm::alignTo(reinterpret_cast<uintptr_t>(literals.data()), 64));
  std::memcpy(aligned, symbol(library, "pipec_literals"), bytes);
  device.emulator = this;
  PipecDevice &t = device.table;
  t.literals = aligned;
  t.fault = reinterpret_cast<char *>(fault);
  setDescending(false);
  t.launch = [](PipecDevice *d, int32_t kernel, int64_t blocks, int32_t threads,
                int32_t sharedBytes, char *const *arguments, int32_t) {
    reinterpret_cast<Device *>(d)->emulator->launch(kernel, blocks, threads,
                                                    sharedBytes, arguments);
  };
  t.matmul = [](PipecDevice *, const PipecMatmul *d, const char *a,
                const char *b, char *c) { multiply(*d, a, b, c); };
  t.biased = [](PipecDevice *d, const PipecMatmul *shape, const char *a,
                const char *b, const char *bias, char *c) -> int32_t {
    DeviceEmulator &self = *reinterpret_cast<Device *>(d)->emulator;
    ++self.biasedCalls;
    if (!self.addsBiases)
      return 0;
    multiplyBiased(*shape, a, b, bias, c);
    return 1;
  };
  t.attention = [](PipecDevice *d, const PipecAttention *shape,
                   char *const *at) -> int32_t {
    DeviceEmulator &self = *reinterpret_cast<Device *>(d)->emulator;
    if (self.attends == Never || (shape->gradient && self.attends == Forward))
      return 0;
    ++self.attendedCalls;
    attend(*shape, at);
    return 1;
  };
  t.conv = [](PipecDevice *, const PipecConv *d, int32_t kind,
              const char *first, const char *second,
              char *result) { convolve(*d, kind, first, second, result); };
  t.clear = [](PipecDevice *, char *at, int64_t bytes) {
    std::memset(at, 0, bytes);
  };
}

DeviceEmulator::~DeviceEmulator() {
  if (code)
    dlclose(code);
}

void DeviceEmulator::compile(const std::string &text) {
  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("pipec-test", "so", path));
  try {
    buildDeviceCode(text, path.str().str());
    code = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  } catch (const std::runtime_error &error) {
    ADD_FAILURE() << error.what();
  }
  llvm::sys::fs::remove(path);
  ASSERT_NE(code, nullptr) << dlerror();
  shared = static_cast<char *>(dlsym(code, "pipec_test_shared"));
  for (size_t i = 0; i < kernels.size(); ++i) {
    std::string name = "kernel" + std::to_string(i);
    kernels[i].entry =
        reinterpret_cast<Entry>(dlsym(code, (name + "_entry").c_str()));
    ASSERT_NE(kernels[i].entry, nullptr) << name;
    kernels[i].meets =
        *static_cast<int32_t *>(dlsym(code, (name + "_meets").c_str())) != 0;
  }
}

void DeviceEmulator::launch(int32_t number, int64_t blocks, int32_t threads,
                            int32_t sharedBytes, char *const *arguments) {
  ASSERT_LT(static_cast<size_t>(number), kernels.size());
  ASSERT_TRUE(threads >= 1 && threads <= 1024 && blocks >= 1) << threads;
  ASSERT_LE(sharedBytes, device.table.row_bytes);
  const Kernel &kernel = kernels[number];
  for (int64_t i = 0; i < blocks; ++i) {
    int64_t block = descending ? blocks - 1 - i : i;
    std::memset(shared, 0xff, sharedBytes);
    try {
      runBlock(block, threads, kernel.meets, descending,
               [&] { kernel.entry(arguments); });
    } catch (const std::logic_error &error) {
      ADD_FAILURE() << error.what();
    }
  }
}

bool DeviceEmulator::takeFault() {
  bool seen = fault[0] != 0;
  fault[0] = 0;
  return seen;
}
