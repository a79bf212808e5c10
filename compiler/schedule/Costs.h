//===- Costs.h - what actions cost in time and memory -----------*- C++ -*-===//
//
// Units are the caller's: any unit of time, any unit of memory, used
// consistently. The compiler uses seconds and bytes, `pipec schedule` uses
// whatever the user typed.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/schedule/Schedule.h"

#include <vector>

namespace pipec::schedule {

/// Costs of every stage and link. Index is the stage unless said otherwise.
struct Costs {
  std::vector<double> forward;        ///< time of F
  std::vector<double> backwardInput;  ///< time of I
  std::vector<double> backwardWeight; ///< time of W; B takes I + W

  /// Time to carry one microbatch's activation (or its gradient) from stage s
  /// to s+1 between different devices; between stages of one device it is
  /// free. Entry s is that boundary; stages-1 entries, or one for all, or none.
  std::vector<double> comm;
  /// Optional [device][device] modifiers: a transfer over boundary s from
  /// device a to device b takes comm[s]*linkFactor[a][b] + linkDelay[a][b].
  /// With comm in bytes, linkFactor is seconds per byte.
  std::vector<std::vector<double>> linkFactor;
  std::vector<std::vector<double>> linkDelay;

  /// What one action of that kind adds to its device's memory (negative:
  /// frees). B adds memoryInput + memoryWeight.
  std::vector<double> memoryForward;
  std::vector<double> memoryInput;
  std::vector<double> memoryWeight;

  /// Per device; empty: none.
  std::vector<double> limit;

  /// Per device, in place of the stages' times and memory: where copies of a
  /// stage are on devices that differ. Empty: they do not.
  struct OnDevice {
    double forward, backwardInput, backwardWeight;
    double memoryForward, memoryInput, memoryWeight;
  };
  std::vector<OnDevice> onDevice;

  double time(Kind kind, int stage, int device) const;
  double memory(Kind kind, int stage, int device) const;
  /// Transfer time over the boundary between `stage` and `stage`+1.
  double hop(int stage, int from, int to) const;
};

/// Every stage alike: a device's F, B, W times and memory deltas divided by the
/// number of stages the device holds. Defaults are one unit each, activations
/// freed by the weight gradient.
struct UniformCosts {
  double forward = 1, backwardInput = 1, backwardWeight = 1, comm = 0;
  double memoryForward = 1, memoryInput = 0, memoryWeight = -1;
  double limit = -1; ///< < 0: none
};
Costs expand(const UniformCosts &uniform, int devices, int chunks);

/// Per-device numbers (INTERFACE: `--costs`), a chunk costing 1/chunks of its
/// device's entry. Lists have one entry per device.
struct DeviceCosts {
  std::vector<double> forward, backwardInput, backwardWeight;
  std::vector<double> memoryForward, memoryInput, memoryWeight;
  std::vector<double> comm; ///< one for all, or per link between d and d+1
  std::vector<std::vector<double>> link; ///< or a device-by-device matrix
  std::vector<double> limit;             ///< empty: none
};
Costs expand(const DeviceCosts &perDevice,
             const std::vector<std::vector<int>> &placement);

/// Throws Failure(Usage) unless lists have `stages` entries, times are finite
/// and not negative (F > 0) and memory numbers are finite.
void check(const Costs &costs, int stages, int devices);

} // namespace pipec::schedule
