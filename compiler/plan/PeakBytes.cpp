#include "compiler/plan/PeakBytes.h"

#include <algorithm>
#include <map>

namespace pipec::plan {

int64_t peakBytes(const std::vector<StagePlan> &stages) {
  struct Device {
    int64_t own = 0, workspace = 0;
  };
  std::map<int, Device> devices;
  int64_t peak = 0;
  for (const StagePlan &stage : stages)
    for (int d : stage.devices) {
      Device &device = devices[d];
      device.own += stage.memory.total() - stage.memory.workspace;
      device.workspace = std::max(device.workspace, stage.memory.workspace);
      peak = std::max(peak, device.own + device.workspace);
    }
  return peak;
}

} // namespace pipec::plan
