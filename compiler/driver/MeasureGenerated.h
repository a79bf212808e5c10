//===- MeasureGenerated.h - times of generated kernels ----------*- C++ -*-===//
#pragma once

#include "compiler/driver/MeasureKernels.h"

#include <vector>

namespace pipec {

/// Generates kernels of many kinds and shapes and times them; fewer by a factor
/// of `share`. Throws Failure(Internal) when they do not compile.
std::vector<plan::KernelSample> measureGenerated(const Workers &workers,
                                                 int share);

} // namespace pipec
