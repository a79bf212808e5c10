//===- MeasureCrowd.h - pipelines of more ranks than cores ------*- C++ -*-===//
#pragma once

#include "compiler/driver/MeasurePrograms.h"
#include "compiler/plan/FitCrowd.h"

#include <vector>

namespace pipec {

/// Microbatches of a step of the pipelines.
inline constexpr int kCrowdMicrobatches = 8;

/// For every program a pipeline of it, as many times as there are ranks: a
/// thread each, in the order of 1F1B, which wait for each other as ranks do.
std::vector<plan::CrowdSample> measureCrowd(const MeasuredPrograms &programs,
                                            int ranks, int cores);

} // namespace pipec
