//===- Calibration.h - a device model from measurements ---------*- C++ -*-===//
//
// `pipec calibrate` runs operators of known size and hands their times here.
// The fit is the analytic model turned around: copies give memory bandwidth and
// launch cost, contractions the reachable peak and how much work reaches half
// of it.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/DeviceModel.h"

#include <string>
#include <vector>

namespace pipec::plan {

/// One timed operator.
struct CalibrationSample {
  OpKind kind = OpKind::MatMul;
  DType dtype = DType::F32;
  double flops = 0, bytes = 0;
  double seconds = 0;
};

/// One timed routine.
struct KernelSample {
  KernelWork work;
  double seconds = 0;
};

/// Sets device.kernels from timings on one thread and, where there are any,
/// forkSeconds and forkEfficiency from some on device.threads. A routine with
/// fewer than two samples for each of its amounts is left out. Throws
/// Failure(Exit::BadModel) for a time that is not above 0.
void fitKernels(DeviceModel &device, const std::vector<KernelSample> &alone,
                const std::vector<KernelSample> &together);

/// What to say of a machine that timed the same calls, in the same order, at
/// another speed in each of `rounds`: other machines on its host, or a clock
/// that moves. Empty where they differ by a tenth at most.
std::string unsteadyNote(const std::vector<std::vector<KernelSample>> &rounds);

/// A call of a task; `far` is as in kernelSeconds.
struct TaskCall {
  KernelWork work;
  double far = 0;
};

/// One timed task of a program: its calls one after the other.
struct TaskSample {
  std::vector<TaskCall> calls;
  double seconds = 0;
};

/// Calls of a task find less in caches and predictors than a call that is
/// repeated: raises the costs of each kind of call by what tasks, on one
/// thread, take beside them. Kinds that hardly occur stay as they are. After
/// fitKernels.
void fitTasks(DeviceModel &device, const std::vector<TaskSample> &tasks);

/// What a loop costs that is shared by the device's threads, and what share of
/// their time is not lost, of whole tasks: threads that take turns with what
/// they write wait for each other's caches, which a call that is repeated does
/// not. Which loops the tasks shared is looked for too: those of which the
/// costs found say so (isShared). After fitTasks; of fewer than four tasks
/// nothing changes.
void fitThreads(DeviceModel &device, const std::vector<TaskSample> &tasks);

/// What `work` costs by the model over what it took: mean distance from 1, and
/// the ratio of the sums.
struct KernelError {
  int samples = 0;
  double mean = 0, total = 0;
};
std::map<std::string, KernelError>
kernelErrors(const DeviceModel &device,
             const std::vector<KernelSample> &samples);

/// Of tasks, whose calls' costs are added up.
KernelError taskErrors(const DeviceModel &device,
                       const std::vector<TaskSample> &tasks);

/// `start` with everything the samples determine replaced; what they say
/// nothing about stays. Throws Failure(Exit::BadModel) for a time that is not
/// above 0 or fewer than two sizes of what is fitted.
DeviceModel fitDevice(const DeviceModel &start,
                      const std::vector<CalibrationSample> &samples);

/// Mean and largest relative error of the model on samples.
struct CalibrationError {
  double mean = 0, largest = 0;
};
CalibrationError
calibrationError(const DeviceModel &device,
                 const std::vector<CalibrationSample> &samples);

} // namespace pipec::plan
