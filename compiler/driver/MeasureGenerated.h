//===- MeasureGenerated.h - times of generated kernels ----------*- C++ -*-===//
#pragma once

#include "compiler/driver/MeasureKernels.h"

#include <memory>
#include <vector>

namespace pipec {

/// Kernels of many kinds and shapes, generated at random.
class GeneratedKernels {
public:
  /// Throws Failure(Internal) when they do not compile.
  explicit GeneratedKernels(int count);
  ~GeneratedKernels();
  GeneratedKernels(const GeneratedKernels &) = delete;

  /// Times the first of `share` and so on.
  std::vector<plan::KernelSample> measure(const Workers &workers,
                                          int share) const;

private:
  class Tasks;
  std::unique_ptr<Tasks> tasks;
};

} // namespace pipec
