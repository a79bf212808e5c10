//===- DeviceModel.h - what a device can do ---------------------*- C++ -*-===//
//
// Devices are rows of Devices.def. The analytic time of an operator is a
// roofline with an efficiency that grows with the amount of work: the launch
// overhead plus the larger of arithmetic and memory time.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/KernelWork.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pipec::plan {

enum class DType { F32, TF32, F16, BF16, F64 };

/// What kind of work an operator is; each kind reaches another share of the
/// peak.
enum class OpKind {
  MatMul,
  Convolution,
  Attention,
  Elementwise,
  Reduction,
  Copy
};

/// What a byte costs that a core writes in passes over so many.
struct CachePass {
  double bytes = 0, secondsPerByte = 0;
  bool operator==(const CachePass &) const = default;
};

/// How many of a core's own caches go by between two calls on the same operands
/// where DeviceModel::farKernels are timed.
inline constexpr int kFarCaches = 3;

struct DeviceModel {
  std::string name;
  std::string kind = "gpu"; ///< "gpu" or "cpu"
  std::string describe;
  int64_t memoryBytes = 0;
  // Dense peaks, FLOP/s.
  double flopsF64 = 0, flopsF32 = 0, flopsTF32 = 0, flopsF16 = 0, flopsBF16 = 0;
  double memoryBandwidth = 0; ///< bytes/s
  int threads = 1;            ///< of a CPU rank that these figures are for
  double launchSeconds = 0;   ///< fixed cost of one kernel
  /// What a convolution costs besides, however small it is: operands are packed
  /// and tiles transformed.
  double convolutionSeconds = 0;
  /// What a task costs beside its calls.
  double taskSeconds = 0;
  /// What a rank does between two tasks.
  double turnSeconds = 0;
  /// FLOPs at which a contraction reaches half of its best efficiency.
  double halfEfficiencyFlops = 0;
  // Share of the peak that a large operator of a kind reaches, and of the
  // memory
  // bandwidth; calibration replaces them.
  double matmulEfficiency = 0.80, convolutionEfficiency = 0.65;
  double attentionEfficiency = 0.55, memoryEfficiency = 0.8;
  /// What calibration found of single routines: KernelWork::kernel -> seconds
  /// of each of its amounts, on one thread.
  std::map<std::string, std::vector<double>> kernels;
  /// The same where operands have left a core's own cache, of so many bytes.
  std::map<std::string, std::vector<double>> farKernels;
  double ownCacheBytes = 0;
  /// Ascending, and none cheaper than the one before; timed on as many cores at
  /// once as ranks use.
  std::vector<CachePass> passes;
  /// The tile of products that these costs are of.
  ProductTile tile;
  /// Of several threads on one routine: the cost of a task that has such
  /// routines, the cost of starting one, and what share of the threads' time is
  /// not lost.
  double wakeSeconds = 0, forkSeconds = 0, forkEfficiency = 1;
  /// From the message that wakes a sleeping rank until it computes again, s.
  /// Calibrated CPUs alone: there who receives copies, too.
  double ringSeconds = 0;
  /// From a message until a rank computes that looks for it: with a core to
  /// itself, and where ranks outnumber the cores and let each other look; s.
  double seenSeconds = 3e-6, crowdSeenSeconds = 3e-6;
  /// What the end of a step takes beside updates: losses, the word to go on, a
  /// line of metrics; s.
  double stepSeconds = 0;
  /// What a rank does beside the copy to take bytes of another rank of its
  /// machine, s. Where `ringSeconds` is.
  double takeSeconds = 0;
  /// The same of a few bytes, which come with their announcement.
  double noteSeconds = 0;
  /// What lies between two tasks besides where ranks outnumber the cores: they
  /// are changed for each other, and those that wait look for messages; s.
  double crowdTurnSeconds = 0;
  /// How much longer tasks take than was measured of them: what a profile's
  /// step says of cores that others had (no member of cluster files).
  double stretchFactor = 1;
  // Interconnect when no cluster file says otherwise: bytes/s, s.
  double intraBandwidth = 0, intraLatency = 0;
  double interBandwidth = 0, interLatency = 0;

  bool operator==(const DeviceModel &) const = default;
  double peak(DType dtype) const;
};

/// Every row of Devices.def, in its order.
const std::vector<DeviceModel> &deviceModels();

/// The row of that name; Failure(Exit::Usage) lists the names there are.
const DeviceModel &deviceModel(const std::string &name);

/// A core of this machine's kind: the generic row with `gigahertz`,
/// `vectorBits` registers and given memory, shared evenly by `ranks` processes.
/// with twice the rate for bf16 if it multiplies pairs of them. Nothing is
/// probed; the caller knows the machine.
DeviceModel nativeCpu(double gigahertz, int vectorBits, int64_t memoryBytes,
                      int ranks, bool multipliesBf16 = false);

/// The device with another number of threads working together.
DeviceModel withThreads(DeviceModel device, int threads);

/// What moving `bytes` costs, as bytes of main memory: a CPU's caches are
/// faster, so that what fits them counts less.
double memoryWork(const DeviceModel &device, double bytes);

/// Seconds of one operator that does `flops` floating-point operations and
/// moves `bytes` to and from memory.
double opSeconds(const DeviceModel &device, double flops, double bytes,
                 OpKind kind, DType dtype);

/// Seconds of a routine on a rank of the device; nothing when it was not
/// calibrated. `far`: the share of its operands that are not in a core's own
/// cache. Threads share it where that is faster, as ranks find out
/// (runtime/kernels/cpu/SharingTrials.h).
std::optional<double> kernelSeconds(const DeviceModel &device,
                                    const KernelWork &work, double far = 0);

/// Whether the device's threads are faster together.
bool isShared(const DeviceModel &device, const KernelWork &work,
              double far = 0);

/// What a task costs beside its calls; `shares`: threads share some of them.
double fixedSeconds(const DeviceModel &device, bool shares);

/// An operand of a call: its size, and how many bytes a core has gone through
/// since it touched it; below 0 where that was in the task before.
struct OperandUse {
  double bytes = 0, distance = -1;
};

/// The share `far` of a call, for a program that comes back to what tasks share
/// after `workingSet` bytes of each core; `threads` divide a task.
double farShare(const DeviceModel &device, const std::vector<OperandUse> &uses,
                double workingSet, int threads);

} // namespace pipec::plan
