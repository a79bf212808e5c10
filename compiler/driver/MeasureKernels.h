//===- MeasureKernels.h - times of the CPU kernels on this machine -*- C++
//-*-=//
#pragma once

#include "compiler/plan/Calibration.h"

#include <functional>
#include <vector>

namespace pipec {

/// As many as run at once, with so many threads each, as the ranks of a server
/// do: what they share, they share here too. Operands come again after so many
/// bytes.
struct Workers {
  int count = 1, threads = 1;
  int64_t footprint = 3 << 20;
};

/// What a routine is timed for at a time, s.
inline constexpr double kCallBudget = 0.0015;

/// Times products, convolutions and passes over memory of several sizes. Takes
/// a few seconds.
std::vector<plan::CalibrationSample> measureKernels(const Workers &workers);

/// Times routines of many shapes, fewer by a factor of `share`: what
/// plan::fitKernels takes.
std::vector<plan::KernelSample> measureRoutines(const Workers &workers,
                                                int share);

/// Seconds of a call of what `make` makes, which every worker does for itself;
/// the mean over the workers of the middle over about `budget` seconds.
double measureCalls(const std::function<std::function<void()>()> &make,
                    const Workers &workers, double budget);

/// Of the cache that a core has for itself.
int64_t ownCacheBytes();

/// What a rank does between two tasks, most of which is to read the clocks, s.
double measureTurn();

/// From a ring (support/Doorbell) until the rank that slept on an idle core
/// runs, s.
double measureRing();

} // namespace pipec
