//===- MeasureKernels.h - times of the CPU kernels on this machine -*- C++
//-*-=//
#pragma once

#include "compiler/plan/Calibration.h"

#include "runtime/kernels/cpu/Kernels.h"

#include <vector>

namespace pipec {

/// Times products, convolutions and passes over memory of several sizes, all
/// `workers` at once with `threads` threads each, as the ranks of a server run
/// them: what they share, they share here too. Takes a few seconds.
std::vector<plan::CalibrationSample> measureKernels(int workers, int threads);

/// Times routines of many shapes, fewer by a factor of `share`: what
/// plan::fitKernels takes.
std::vector<plan::KernelSample> measureRoutines(int workers, int threads,
                                                int share);

/// How long a rank that waits for a message sleeps between two looks, the
/// middle of many (runtime/control/Watch.cpp asks for 20 us), s.
double measureNap();

/// What the kernel library has to do for a convolution; `which` is a
/// PipecConvKind.
plan::KernelWork convolutionWork(const PipecConv &shape, int which);

} // namespace pipec
