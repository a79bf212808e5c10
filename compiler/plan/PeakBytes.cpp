#include "compiler/plan/PeakBytes.h"

#include <algorithm>
#include <map>

namespace pipec::plan {

int64_t peakBytes(const std::vector<StagePlan> &stages) {
  struct Device {
    int64_t own = 0, workspace = 0, sums = 0;
  };
  std::map<int, Device> devices;
  int64_t peak = 0;
  for (const StagePlan &stage : stages)
    for (int d : stage.devices) {
      Device &device = devices[d];
      const MemoryParts &memory = stage.memory;
      device.own += memory.total() - memory.workspace - memory.sums;
      device.workspace = std::max(device.workspace, memory.workspace);
      device.sums = std::max(device.sums, memory.sums);
      peak = std::max(peak, device.own + device.workspace + device.sums);
    }
  return peak;
}

} // namespace pipec::plan
