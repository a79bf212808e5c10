#include "compiler/plan/Calibration.h"

#include "support/Failure.h"

#include <algorithm>
#include <cmath>

namespace pipec::plan {

namespace {

struct Line {
  double intercept = 0, slope = 0;
};

/// Least relative squares of t = intercept + slope * x, neither negative.
Line fitLine(const std::vector<std::pair<double, double>> &points) {
  double w = 0, wx = 0, wxx = 0, wt = 0, wxt = 0;
  for (auto [x, t] : points) {
    double weight = 1 / (t * t);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wt += weight * t;
    wxt += weight * x * t;
  }
  double determinant = w * wxx - wx * wx;
  Line line;
  if (determinant > 1e-12 * w * wxx) {
    line.slope = (w * wxt - wx * wt) / determinant;
    line.intercept = (wxx * wt - wx * wxt) / determinant;
  }
  if (line.intercept < 0 || determinant <= 1e-12 * w * wxx) {
    line.intercept = 0;
    line.slope = wxx > 0 ? wxt / wxx : 0;
  }
  return line;
}

bool twoSizes(const std::vector<std::pair<double, double>> &points) {
  return std::any_of(points.begin(), points.end(), [&](const auto &p) {
    return std::abs(p.first - points.front().first) >
           1e-9 * points.front().first;
  });
}

/// Sizes and times of one kind and type whose arithmetic outlasts their
/// traffic.
std::vector<std::pair<double, double>>
contractions(const DeviceModel &device,
             const std::vector<CalibrationSample> &samples, OpKind kind,
             DType dtype) {
  std::vector<std::pair<double, double>> points;
  for (const CalibrationSample &s : samples)
    if (s.kind == kind && s.dtype == dtype) {
      double memory = memoryWork(device, s.bytes) /
                      (device.memoryEfficiency * device.memoryBandwidth);
      // A CPU moves and computes in turn.
      double rest = device.kind == "cpu" ? s.seconds - memory : s.seconds;
      if (memory < 0.7 * s.seconds)
        points.push_back({s.flops, rest});
    }
  return points;
}

double &peakOf(DeviceModel &device, DType dtype) {
  switch (dtype) {
  case DType::F64:
    return device.flopsF64;
  case DType::F32:
    return device.flopsF32;
  case DType::TF32:
    return device.flopsTF32;
  case DType::F16:
    return device.flopsF16;
  case DType::BF16:
    return device.flopsBF16;
  }
  return device.flopsF32;
}

void fitMemory(DeviceModel &device,
               const std::vector<CalibrationSample> &samples) {
  std::vector<std::pair<double, double>> points;
  for (const CalibrationSample &s : samples)
    if (s.kind == OpKind::Copy || s.kind == OpKind::Elementwise ||
        s.kind == OpKind::Reduction)
      points.push_back({memoryWork(device, s.bytes), s.seconds});
  if (points.empty())
    return;
  if (!twoSizes(points))
    throw Failure(Exit::BadModel,
                  "calibration needs copies of at least two sizes");
  Line line = fitLine(points);
  if (line.slope > 0)
    device.memoryBandwidth = 1 / (line.slope * device.memoryEfficiency);
  device.launchSeconds = line.intercept;
}

void fitContraction(DeviceModel &device,
                    const std::vector<CalibrationSample> &samples, OpKind kind,
                    DType dtype) {
  auto points = contractions(device, samples, kind, dtype);
  if (points.size() < 2 || !twoSizes(points))
    return;
  Line line = fitLine(points);
  if (line.slope <= 0)
    return;
  double reachable = 1 / line.slope;
  if (kind == OpKind::MatMul) {
    peakOf(device, dtype) = reachable / device.matmulEfficiency;
    if (dtype == DType::F32)
      device.halfEfficiencyFlops =
          std::max(0.0, line.intercept - device.launchSeconds) * reachable;
  } else if (kind == OpKind::Convolution) {
    device.convolutionEfficiency = reachable / device.peak(dtype);
    if (dtype == DType::F32) // beside what products lose, too
      device.convolutionSeconds =
          std::max(0.0, line.intercept - device.launchSeconds -
                            device.halfEfficiencyFlops / reachable);
  } else {
    device.attentionEfficiency = reachable / device.peak(dtype);
  }
}

} // namespace

DeviceModel fitDevice(const DeviceModel &start,
                      const std::vector<CalibrationSample> &samples) {
  for (const CalibrationSample &s : samples)
    if (!std::isfinite(s.seconds) || s.seconds <= 0 || s.flops < 0 ||
        s.bytes < 0)
      throw Failure(Exit::BadModel, "a calibration time is not above 0");
  DeviceModel device = start;
  fitMemory(device, samples);
  for (DType dtype :
       {DType::F32, DType::BF16, DType::F16, DType::TF32, DType::F64})
    for (OpKind kind : {OpKind::MatMul, OpKind::Convolution, OpKind::Attention})
      fitContraction(device, samples, kind, dtype);
  return device;
}

CalibrationError
calibrationError(const DeviceModel &device,
                 const std::vector<CalibrationSample> &samples) {
  CalibrationError error;
  for (const CalibrationSample &s : samples) {
    double predicted = opSeconds(device, s.flops, s.bytes, s.kind, s.dtype);
    double relative = std::abs(predicted / s.seconds - 1);
    error.mean += relative / static_cast<double>(samples.size());
    error.largest = std::max(error.largest, relative);
  }
  return error;
}

} // namespace pipec::plan
