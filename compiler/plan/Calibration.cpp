#include "compiler/plan/Calibration.h"

#include "support/Failure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>

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
  if (line.slope < 0) {
    line.slope = 0;
    line.intercept = wt / w;
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
  if (line.slope <= 0) // what larger ones take is not told from chance
    return;
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

namespace {

using Rows = std::vector<std::vector<double>>;

/// Costs x >= 0 with least sum of (row * x - t)^2 / weight, by coordinate
/// descent on the normal equations.
std::vector<double> nonnegative(const Rows &rows,
                                const std::vector<double> &seconds,
                                const std::vector<double> &weights) {
  const size_t n = rows.front().size();
  Rows normal(n, std::vector<double>(n, 0));
  std::vector<double> right(n, 0), scale(n, 0), x(n, 0);
  for (const auto &row : rows)
    for (size_t j = 0; j < n; ++j)
      scale[j] = std::max(scale[j], row[j]);
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t j = 0; j < n; ++j) {
      if (scale[j] == 0)
        continue;
      const double a = rows[i][j] / scale[j] / weights[i];
      right[j] += a * seconds[i];
      for (size_t l = 0; l < n; ++l)
        if (scale[l] > 0)
          normal[j][l] += a * rows[i][l] / scale[l];
    }
  for (int pass = 0; pass < 5000; ++pass)
    for (size_t j = 0; j < n; ++j) {
      if (normal[j][j] <= 0)
        continue;
      double gradient = right[j];
      for (size_t l = 0; l < n; ++l)
        gradient -= normal[j][l] * x[l];
      x[j] = std::max(0.0, x[j] + gradient / normal[j][j]);
    }
  for (size_t j = 0; j < n; ++j)
    x[j] = scale[j] > 0 ? x[j] / scale[j] : 0;
  return x;
}

double dot(const std::vector<double> &a, const std::vector<double> &b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// Relative errors count, and too little as much as too much: squares over the
/// time alone would favour what is too short.
std::vector<double> fitCosts(const Rows &rows,
                             const std::vector<double> &seconds) {
  std::vector<double> weights;
  for (double t : seconds)
    weights.push_back(t * t);
  std::vector<double> costs = nonnegative(rows, seconds, weights);
  for (int round = 0; round < 4; ++round) {
    for (size_t i = 0; i < rows.size(); ++i)
      weights[i] = seconds[i] * std::max(dot(rows[i], costs), 0.1 * seconds[i]);
    costs = nonnegative(rows, seconds, weights);
  }
  return costs;
}

} // namespace

void fitKernels(DeviceModel &device, const std::vector<KernelSample> &alone,
                const std::vector<KernelSample> &together) {
  std::map<std::string, std::pair<Rows, std::vector<double>>> timed;
  for (const std::vector<KernelSample> *list : {&alone, &together})
    for (const KernelSample &s : *list)
      if (!std::isfinite(s.seconds) || s.seconds <= 0)
        throw Failure(Exit::BadModel, "a calibration time is not above 0");
  for (const KernelSample &s : alone) {
    auto &[rows, seconds] = timed[s.work.kernel];
    rows.push_back(s.work.amounts);
    seconds.push_back(s.seconds);
  }
  for (const auto &[name, samples] : timed)
    if (const auto &[rows, seconds] = samples;
        rows.size() >= 2 * rows.front().size())
      device.kernels[name] = fitCosts(rows, seconds);
  Rows rows;
  std::vector<double> seconds;
  DeviceModel single = device;
  single.threads = 1;
  for (const KernelSample &s : together)
    if (auto own = kernelSeconds(single, s.work); own && s.work.divides) {
      rows.push_back({1, *own / device.threads});
      seconds.push_back(s.seconds);
    }
  if (rows.size() < 4)
    return;
  const std::vector<double> fork = fitCosts(rows, seconds);
  if (fork[1] > 0)
    device.forkSeconds = fork[0], device.forkEfficiency = 1 / fork[1];
}

std::string unsteadyNote(const std::vector<std::vector<KernelSample>> &rounds) {
  if (rounds.empty())
    return "";
  std::vector<double> sums(rounds.size(), 0);
  for (size_t r = 0; r < rounds.size(); ++r)
    for (size_t i = 0; i < rounds[r].size(); ++i) // each counts as much
      sums[r] += rounds[r][i].seconds / rounds.front()[i].seconds;
  const auto [least, most] = std::minmax_element(sums.begin(), sums.end());
  if (!(*most > 1.1 * *least))
    return "";
  char factor[32];
  std::snprintf(factor, sizeof factor, "%.2f", *most / *least);
  return "the same calls took " + std::string(factor) +
         " times as long in one round as in another: these cores are not "
         "equally fast all the time (the host of a virtual machine, a clock "
         "that moves), and steps will be as far from what is predicted; "
         "calibrate again at a quieter time";
}

namespace {

/// Kinds of calls whose costs change together; a call may cost more besides
/// where calls are short.
struct Family {
  const char *part; ///< of the kernel's name
  bool isShort;
};
constexpr Family kFamilies[] = {{"-winograd", false},
                                {"-rows", false},
                                {"convolution", false},
                                {"product", true},
                                {"generated", true},
                                {"pool", false},
                                {"", true}};
constexpr size_t kFamilyCount = std::size(kFamilies);

size_t familyOf(const std::string &kernel) {
  return static_cast<size_t>(
      std::find_if(std::begin(kFamilies), std::end(kFamilies),
                   [&](const Family &family) {
                     return kernel.find(family.part) != std::string::npos;
                   }) -
      std::begin(kFamilies));
}

/// What the calls take by the model, by family, and how many there are; one
/// task.
std::vector<double> familySums(const DeviceModel &single,
                               const TaskSample &task) {
  std::vector<double> sums(2 * kFamilyCount + 1, 0);
  sums.back() = 1;
  for (const auto &[work, far] : task.calls)
    if (auto cost = kernelSeconds(single, work, far)) {
      const size_t family = familyOf(work.kernel);
      sums[family] += *cost;
      sums[kFamilyCount + family] += kFamilies[family].isShort;
    }
  return sums;
}

} // namespace

void fitTasks(DeviceModel &device, const std::vector<TaskSample> &tasks) {
  DeviceModel single = device;
  single.threads = 1;
  Rows rows;
  std::vector<double> seconds;
  std::array<bool, kFamilyCount> occurs{};
  for (const TaskSample &task : tasks) {
    if (!std::isfinite(task.seconds) || task.seconds <= 0)
      throw Failure(Exit::BadModel, "a calibration time is not above 0");
    rows.push_back(familySums(single, task));
    seconds.push_back(task.seconds);
    for (size_t f = 0; f < kFamilyCount; ++f)
      occurs[f] = occurs[f] || rows.back()[f] > 0;
  }
  if (tasks.empty())
    return;
  // As much as one task in 24 says that a kind costs what it costs alone: what
  // hardly occurs keeps its costs.
  constexpr double kUsual = 1e-4;
  for (size_t f = 0; f < kFamilyCount; ++f)
    for (size_t i = 0; i < 1 + tasks.size() / 24; ++i) {
      std::vector<double> row(2 * kFamilyCount + 1, 0);
      row[f] = kUsual;
      rows.push_back(std::move(row));
      seconds.push_back(kUsual);
    }
  const std::vector<double> fit = fitCosts(rows, seconds);
  device.taskSeconds = fit.back();
  for (auto *kernels : {&device.kernels, &device.farKernels})
    for (auto &[name, costs] : *kernels) {
      const size_t family = familyOf(name);
      if (!occurs[family])
        continue;
      for (double &cost : costs)
        cost *= fit[family];
      costs[0] += fit[kFamilyCount + family];
    }
}

namespace {

/// One step of fitThreads: the costs of sharing by the tasks, of which those
/// loops are taken to be shared that `device` says are. False where there are
/// too few.
bool refitThreads(DeviceModel &device, const std::vector<TaskSample> &tasks) {
  DeviceModel single = device;
  single.threads = 1;
  Rows rows;
  std::vector<double> seconds, weights;
  for (const TaskSample &task : tasks) {
    double shared = 0, rest = task.seconds - device.taskSeconds;
    int loops = 0;
    for (const auto &[work, far] : task.calls)
      if (auto cost = kernelSeconds(single, work, far)) {
        const bool divides = isShared(device, work, far);
        (divides ? shared : rest) += divides ? *cost : -*cost;
        loops += divides;
      }
    if (loops == 0)
      continue;
    rows.push_back({1, static_cast<double>(loops), shared / device.threads});
    seconds.push_back(rest);
    // Between relative and absolute errors: what little tasks lose besides
    // says less of a step.
    weights.push_back(task.seconds);
  }
  if (rows.size() < 4)
    return false;
  const std::vector<double> fit = nonnegative(rows, seconds, weights);
  device.wakeSeconds = fit[0], device.forkSeconds = fit[1];
  // Threads do not make each other faster, nor slower than one of them.
  device.forkEfficiency =
      std::clamp(fit[2] > 0 ? 1 / fit[2] : 1.0, 1.0 / device.threads, 1.0);
  return true;
}

double taskSeconds(const DeviceModel &device, const TaskSample &task) {
  double sum = 0;
  bool shares = false;
  for (const auto &[work, far] : task.calls) {
    sum += kernelSeconds(device, work, far).value_or(0);
    shares |= isShared(device, work, far);
  }
  return sum + fixedSeconds(device, shares);
}

/// Squares of what the device's costs miss, weighted as they are fitted.
double missed(const DeviceModel &device, const std::vector<TaskSample> &tasks) {
  double sum = 0;
  for (const TaskSample &task : tasks) {
    const double by = taskSeconds(device, task) - task.seconds;
    sum += by * by / task.seconds;
  }
  return sum;
}

} // namespace

void fitThreads(DeviceModel &device, const std::vector<TaskSample> &tasks) {
  // Which loops are worth sharing depends on what is looked for: from those
  // that are by a guess to those that are by the costs found so far.
  constexpr int kSteps = 12;
  DeviceModel found = device;
  double least = std::numeric_limits<double>::infinity();
  for (const double guess : {0.0, 2e-6, 8e-6, 32e-6}) {
    DeviceModel next = device;
    next.forkSeconds = guess, next.forkEfficiency = 1;
    for (int step = 0; step < kSteps && refitThreads(next, tasks); ++step)
      if (const double off = missed(next, tasks); off < least) {
        least = off;
        found = next;
      }
  }
  device = found;
}

KernelError taskErrors(const DeviceModel &device,
                       const std::vector<TaskSample> &tasks) {
  KernelError error;
  double took = 0;
  for (const TaskSample &task : tasks) {
    const double model = taskSeconds(device, task);
    ++error.samples;
    error.mean +=
        std::abs(model / task.seconds - 1) / static_cast<double>(tasks.size());
    error.total += model;
    took += task.seconds;
  }
  if (took > 0)
    error.total /= took;
  return error;
}

std::map<std::string, KernelError>
kernelErrors(const DeviceModel &device,
             const std::vector<KernelSample> &samples) {
  std::map<std::string, KernelError> errors;
  std::map<std::string, double> took;
  for (const KernelSample &s : samples)
    if (auto model = kernelSeconds(device, s.work)) {
      KernelError &error = errors[s.work.kernel];
      ++error.samples;
      error.mean += std::abs(*model / s.seconds - 1);
      error.total += *model;
      took[s.work.kernel] += s.seconds;
    }
  for (auto &[name, error] : errors)
    error.mean /= error.samples, error.total /= took[name];
  return errors;
}

} // namespace pipec::plan
