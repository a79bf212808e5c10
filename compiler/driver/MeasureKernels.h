//===- MeasureKernels.h - times of the CPU kernels on this machine -*- C++
//-*-=//
#pragma once

#include "compiler/plan/Calibration.h"

#include <vector>

namespace pipec {

/// Times products, convolutions and passes over memory of several sizes, all
/// `workers` at once with `threads` threads each, as the ranks of a server run
/// them: what they share, they share here too. Takes a few seconds.
std::vector<plan::CalibrationSample> measureKernels(int workers, int threads);

} // namespace pipec
