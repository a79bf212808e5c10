//===- MeasurePasses.h - times of passes over memory ------------*- C++ -*-===//
#pragma once

#include "compiler/plan/DeviceModel.h"

#include <cstdint>
#include <vector>

namespace pipec {

/// What a byte costs to write in passes over half of a core's `own` cache,
/// twice as many bytes, and so on, by so many threads at the same time, each
/// over memory of its own: up to 128 MiB, and of all together 2 GiB or an
/// eighth of the machine's.
std::vector<plan::CachePass> measurePasses(int workers, int64_t own);

} // namespace pipec
