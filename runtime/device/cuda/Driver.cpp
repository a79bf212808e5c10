//===- Driver.cpp - libcuda -----------------------------------------------===//
#include "runtime/device/cuda/Driver.h"
#include "runtime/device/cuda/Library.h"
#include "support/Failure.h"

namespace pipec::cuda {
namespace {

/// CUDA 12.0: the oldest driver whose capture and module entry points these
/// are.
constexpr int kOldestVersion = 12000;

Driver openDriver() {
  static const Library library(
      "the driver", "nvidia-smi", {"libcuda.so.1"},
      "install NVIDIA's driver, or compile with --cpus to run without a GPU");
  Driver driver;
#define ENTRY(name, symbol, parameters) library.find(driver.name, #symbol);
#include "runtime/device/cuda/Driver.def"
  auto none = [](const std::string &why) {
    throw Failure(Exit::Unavailable, "no GPU can be used: " + why);
  };
  if (int result = driver.init(0))
    none("cuInit says " + driver.describe(result) +
         "; see whether nvidia-smi finds one, or compile with --cpus");
  int version = 0;
  driver.check(driver.version(&version), "cuDriverGetVersion");
  if (version < kOldestVersion)
    none("the driver is of CUDA " + std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10) +
         ", 12.0 is needed; install a newer one");
  driver.check(driver.deviceCount(&driver.devices), "cuDeviceGetCount");
  if (driver.devices == 0)
    none("the driver sees none (CUDA_VISIBLE_DEVICES may hide them); compile "
         "with --cpus to run without");
  return driver;
}

} // namespace

const Driver &Driver::get() {
  static const Driver driver = openDriver();
  return driver;
}

std::string Driver::describe(int result) const {
  const char *name = nullptr, *text = nullptr;
  if (errorName(result, &name) || !name)
    return "an unknown error, " + std::to_string(result);
  if (errorText(result, &text) || !text)
    return name;
  return std::string(name) + " (" + text + ")";
}

void Driver::check(int result, const char *what) const {
  if (result == 0)
    return;
  if (result == kOutOfMemory)
    throw Failure(Exit::NoFit,
                  std::string("the GPU's memory is full (") + what +
                      "); compile with more stages, fewer microbatches in "
                      "flight or --recompute full, or end what else uses it");
  throw Failure(Exit::Unavailable, std::string("the GPU has failed: ") + what +
                                       " says " + describe(result));
}

} // namespace pipec::cuda
