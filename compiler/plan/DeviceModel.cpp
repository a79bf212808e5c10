#include "compiler/plan/DeviceModel.h"

#include "support/Failure.h"
#include "support/UnknownName.h"

#include <algorithm>
#include <numeric>

namespace pipec::plan {

double DeviceModel::peak(DType dtype) const {
  switch (dtype) {
  case DType::F64:
    return flopsF64;
  case DType::F32:
    return flopsF32;
  case DType::TF32:
    return flopsTF32;
  case DType::F16:
    return flopsF16;
  case DType::BF16:
    return flopsBF16;
  }
  return flopsF32;
}

const std::vector<DeviceModel> &deviceModels() {
  static const std::vector<DeviceModel> models = [] {
    std::vector<DeviceModel> rows;
    auto add = [&](const char *name, const char *kind, double memoryGiB,
                   double f64, double f32, double tf32, double f16, double bf16,
                   double memoryGBps, double launchUs, double halfMflop,
                   double intraGBps, double intraUs, double interGBps,
                   double interUs, const char *describe) {
      DeviceModel d;
      d.name = name;
      d.kind = kind;
      d.describe = describe;
      d.memoryBytes = static_cast<int64_t>(memoryGiB * (int64_t(1) << 30));
      d.flopsF64 = f64 * 1e12, d.flopsF32 = f32 * 1e12,
      d.flopsTF32 = tf32 * 1e12;
      d.flopsF16 = f16 * 1e12, d.flopsBF16 = bf16 * 1e12;
      d.memoryBandwidth = memoryGBps * 1e9;
      d.launchSeconds = launchUs * 1e-6;
      d.halfEfficiencyFlops = halfMflop * 1e6;
      d.intraBandwidth = intraGBps * 1e9, d.intraLatency = intraUs * 1e-6;
      d.interBandwidth = interGBps * 1e9, d.interLatency = interUs * 1e-6;
      // Measured on an H100 and an H200 (docs/gpu.md).
      if (d.name.starts_with("h100") || d.name.starts_with("h200"))
        d.matmulEfficiency = 0.72, d.convolutionEfficiency = 0.45,
        d.attentionEfficiency = 0.28;
      rows.push_back(d);
    };
#define DEVICE(...) add(__VA_ARGS__);
#include "compiler/plan/Devices.def"
    return rows;
  }();
  return models;
}

const DeviceModel &deviceModel(const std::string &name) {
  std::vector<std::string> names;
  for (const DeviceModel &d : deviceModels()) {
    if (d.name == name)
      return d;
    names.push_back(d.name);
  }
  throw Failure(Exit::Usage, unknownName("device model", name, names));
}

DeviceModel nativeCpu(double gigahertz, int vectorBits, int64_t memoryBytes,
                      int ranks, bool multipliesBf16) {
  if (ranks < 1 || !(gigahertz > 0) || vectorBits < 32 || memoryBytes < 1)
    throw Failure(Exit::Usage, "a CPU needs at least one rank, a clock, 32-bit "
                               "vectors and memory");
  DeviceModel d = deviceModel("cpu");
  d.name = "native";
  d.describe = "this machine's CPU, shared evenly by its ranks";
  // Two fused multiply-adds a cycle.
  double f32 = gigahertz * 1e9 * (vectorBits / 32.0) * 2 * 2;
  d.flopsF32 = d.flopsTF32 = f32;
  d.flopsF64 = f32 / 2;
  d.flopsF16 = f32;
  d.flopsBF16 = multipliesBf16 ? 2 * f32 : f32;
  d.memoryBytes = memoryBytes / ranks;
  return d;
}

DeviceModel withThreads(DeviceModel d, int threads) {
  double factor = static_cast<double>(threads) / d.threads;
  for (double *rate : {&d.flopsF64, &d.flopsF32, &d.flopsTF32, &d.flopsF16,
                       &d.flopsBF16, &d.memoryBandwidth})
    *rate *= factor;
  d.threads = threads;
  return d;
}

namespace {
/// Share of the peak that a large operator of that kind reaches.
double bestEfficiency(const DeviceModel &device, OpKind kind) {
  switch (kind) {
  case OpKind::MatMul:
    return device.matmulEfficiency;
  case OpKind::Convolution:
    return device.convolutionEfficiency;
  case OpKind::Attention:
    return device.attentionEfficiency;
  case OpKind::Elementwise:
  case OpKind::Reduction:
  case OpKind::Copy:
    break; // vector units, not the contraction's peak; memory binds anyway
  }
  return 0.25;
}
} // namespace

double memoryWork(const DeviceModel &device, double bytes) {
  if (device.kind != "cpu")
    return bytes;
  // A core's own cache is about four times as fast as memory, the shared one
  // twice.
  constexpr double own = 512 << 10, shared = 16 << 20;
  return std::min(bytes, own) / 4 +
         std::clamp(bytes - own, 0.0, shared - own) / 2 +
         std::max(0.0, bytes - shared);
}

double opSeconds(const DeviceModel &device, double flops, double bytes,
                 OpKind kind, DType dtype) {
  bool contraction = kind == OpKind::MatMul || kind == OpKind::Convolution ||
                     kind == OpKind::Attention;
  // Elementwise work runs in the type it is stored in, but never on tensor
  // cores.
  double peak = contraction
                    ? device.peak(dtype)
                    : (dtype == DType::F64 ? device.flopsF64 : device.flopsF32);
  double arithmetic = 0;
  if (flops > 0) {
    double efficiency = bestEfficiency(device, kind);
    if (contraction)
      efficiency *= flops / (flops + device.halfEfficiencyFlops);
    arithmetic = flops / (peak * efficiency);
  }
  double memory = memoryWork(device, bytes) /
                  (device.memoryBandwidth * device.memoryEfficiency);
  // A core packs operands, or waits for them, and computes in turn; a GPU does
  // both at once.
  bool inTurn = device.kind == "cpu";
  const double fixed =
      device.launchSeconds +
      (kind == OpKind::Convolution ? device.convolutionSeconds : 0);
  return fixed + (inTurn ? arithmetic + memory : std::max(arithmetic, memory));
}

static std::optional<double>
costOf(const std::map<std::string, std::vector<double>> &kernels,
       const KernelWork &work) {
  auto known = kernels.find(work.kernel);
  if (known == kernels.end() && work.kernel == "product-bf16")
    known = kernels.find("product"); // of a processor that widens them
  if (known == kernels.end())
    return std::nullopt;
  return std::inner_product(work.amounts.begin(), work.amounts.end(),
                            known->second.begin(), 0.0);
}

namespace {

/// Of a routine on one thread.
std::optional<double> aloneSeconds(const DeviceModel &device,
                                   const KernelWork &work, double far) {
  const auto near = costOf(device.kernels, work);
  if (!near)
    return std::nullopt;
  const double away = costOf(device.farKernels, work).value_or(*near);
  return *near + far * (away - *near);
}

/// Of a loop that takes a thread so long; as long where there is no other.
double sharedSeconds(const DeviceModel &device, double alone) {
  if (device.threads <= 1)
    return alone;
  return device.forkSeconds + alone / (device.threads * device.forkEfficiency);
}

} // namespace

std::optional<double> kernelSeconds(const DeviceModel &device,
                                    const KernelWork &work, double far) {
  const auto alone = aloneSeconds(device, work, far);
  if (!alone || !work.divides)
    return alone;
  return std::min(*alone, sharedSeconds(device, *alone));
}

bool isShared(const DeviceModel &device, const KernelWork &work, double far) {
  const auto alone = aloneSeconds(device, work, far);
  return alone && work.divides && sharedSeconds(device, *alone) < *alone;
}

double fixedSeconds(const DeviceModel &device, bool shares) {
  return device.taskSeconds + (shares ? device.wakeSeconds : 0);
}

double farShare(const DeviceModel &device, const std::vector<OperandUse> &uses,
                double workingSet, int threads) {
  if (device.ownCacheBytes <= 0)
    return 0;
  double bytes = 0, far = 0;
  for (const OperandUse &use : uses) {
    const double distance =
        use.distance < 0 ? workingSet : use.distance / threads;
    // Not at once: what else is in the cache is never known exactly.
    far +=
        use.bytes * std::clamp(distance / device.ownCacheBytes - 0.5, 0.0, 1.0);
    bytes += use.bytes;
  }
  return bytes > 0 ? far / bytes : 0;
}

} // namespace pipec::plan
