//===- PeakBytes.h - what the fullest device of a plan holds ----*- C++ -*-===//
#pragma once

#include "compiler/plan/Planner.h"

namespace pipec::plan {

/// What a device holds: all of its stages, and one workspace and one place for
/// sums of gradients, since one of them works at a time.
struct DeviceBytes {
  int64_t own = 0, workspace = 0, sums = 0;
  void add(const MemoryParts &memory);
  int64_t total() const { return own + workspace + sums; }
};

/// By number; 0 of those without a stage.
std::vector<DeviceBytes> bytesOfDevices(const std::vector<StagePlan> &stages);

/// Largest bytes on any device.
int64_t peakBytes(const std::vector<StagePlan> &stages);

} // namespace pipec::plan
