//===- Devices.cpp - the devices that the options name --------------------===//
#include "compiler/driver/Planning.h"

#include "compiler/plan/TypicalCore.h"
#include "report/Format.h"
#include "runtime/kernels/cpu/Kernels.h"
#include "support/Failure.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>

namespace pipec {

/// Ranks that share a server's memory in "NxM" or "M"; 1 when it cannot be read
/// (gridTopology complains).
static int ranksOfServer(const std::string &grid) {
  const size_t by = grid.find('x');
  const char *each = grid.c_str() + (by == std::string::npos ? 0 : by + 1);
  return static_cast<int>(
      std::clamp<int64_t>(std::strtoll(each, nullptr, 10), 1, 1 << 20));
}

/// Of the kernels that this machine runs (runtime/kernels/cpu/level).
static int vectorBits() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
    return 512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return 256;
#endif
  return 128;
}

static bool multipliesBf16() {
#if defined(__x86_64__)
  return vectorBits() == 512 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

/// The model of that name, which must be of the kind that the grid is for.
static plan::DeviceModel deviceOf(const std::string &name, bool gpus) {
  plan::DeviceModel device = plan::namedDevice(name);
  if ((device.kind != "cpu") != gpus)
    throw Failure(Exit::Usage,
                  "--device " + name +
                      (gpus ? " is no GPU: give its ranks with --cpus NxM"
                            : " is a GPU: give their number with --gpus NxM"));
  return device;
}

plan::ProductTile productTile() {
  plan::ProductTile tile;
  pipec_product_tile(&tile.rows, &tile.lanes, &tile.vectors);
  return tile;
}

static int machineCores() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

static plan::DeviceModel machineCore(const std::string &grid) {
  const int64_t memory =
      static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return plan::nativeCpu(3.0, vectorBits(), memory, ranksOfServer(grid),
                         multipliesBf16());
}

plan::Topology untimedMachines(const std::string &grid) {
  return plan::shareCores(plan::gridTopology(grid, machineCore(grid)),
                          machineCores());
}

plan::Topology topologyOf(const CompileOptions &o) {
  if (!o.clusterFile.empty())
    return plan::readTopology(o.clusterFile);
  if (!o.gpus.empty())
    return plan::gridTopology(
        o.gpus, deviceOf(o.device.empty() ? "h100-sxm" : o.device, true));
  if (!o.device.empty())
    return plan::gridTopology(o.cpus, deviceOf(o.device, false));
  return plan::shareCores(
      plan::gridTopology(o.cpus,
                         plan::typicalCore(machineCore(o.cpus), productTile())),
      machineCores());
}

std::vector<int> groupSizes(const std::string &text,
                            const plan::Topology &topology) {
  if (text == "1")
    return {1};
  const int server = topology.levels.back().count;
  if (topology.cores > 0 && topology.serverSize() > topology.cores)
    throw Failure(
        Exit::Usage,
        "--tensor-parallel: " + report::plural(topology.serverSize(), "rank") +
            " share " + report::plural(topology.cores, "core") +
            "; give --gpus, a --cluster, or as many ranks as cores");
  std::vector<int> sizes;
  if (text == "auto") {
    for (int size = 1; size <= server; size *= 2)
      if (server % size == 0)
        sizes.push_back(size);
    return sizes;
  }
  const int size = std::stoi(text);
  if (size > server || server % size != 0)
    throw Failure(Exit::Usage, "--tensor-parallel " + text + ": a server's " +
                                   report::plural(server, "device") +
                                   (server == 1 ? " forms" : " form") +
                                   " no groups of " + text +
                                   "; give a divisor of their number, or auto");
  return {size};
}

} // namespace pipec
