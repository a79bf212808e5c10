#include "compiler/plan/PeakBytes.h"

#include <algorithm>

namespace pipec::plan {

void DeviceBytes::add(const MemoryParts &memory) {
  own += memory.total() - memory.workspace - memory.sums;
  workspace = std::max(workspace, memory.workspace);
  sums = std::max(sums, memory.sums);
}

std::vector<DeviceBytes> bytesOfDevices(const std::vector<StagePlan> &stages) {
  int last = 0;
  for (const StagePlan &stage : stages)
    for (const int d : stage.devices)
      last = std::max(last, d);
  std::vector<DeviceBytes> devices(static_cast<size_t>(last) + 1);
  for (const StagePlan &stage : stages)
    for (const int d : stage.devices)
      devices[static_cast<size_t>(d)].add(stage.memory);
  return devices;
}

int64_t peakBytes(const std::vector<StagePlan> &stages) {
  int64_t peak = 0;
  for (const DeviceBytes &device : bytesOfDevices(stages))
    peak = std::max(peak, device.total());
  return peak;
}

} // namespace pipec::plan
