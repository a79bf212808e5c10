#include "compiler/plan/intraop/Resharding.h"

#include <numeric>

namespace pipec::plan {

ShardingGroup groupOf(const PlanRequest &request, int degree, int replicas) {
  ShardingGroup group;
  group.devices = degree;
  std::vector<int> devices(static_cast<size_t>(degree));
  std::iota(devices.begin(), devices.end(), 0);
  if (degree > 1)
    group.link = request.topology.ringLink(devices);
  group.microbatches = (request.microbatches + replicas - 1) / replicas;
  group.fixedSeconds = request.topology.device.launchSeconds;
  group.updateSecondsPerByte = updateSecondsPerByte(request);
  group.gradientCopies = request.strategy.gradientCopies;
  group.copies = request.strategy.gradientCopies + 1 +
                 request.optimizerBytesPerParameterByte;
  return group;
}

double ringSeconds(const ShardingGroup &group, int64_t bytes) {
  const double slice = static_cast<double>(bytes) / group.devices;
  return (group.devices - 1) *
         (group.link.latency + slice / group.link.bandwidth);
}

double reshardSeconds(const ShardingGroup &group, int64_t bytes, Layout from,
                      Layout to) {
  if (bytes == 0 || from == to || from == kWhole)
    return 0;
  if (from == kPartial)
    return (to == kWhole ? 2 : 1) * ringSeconds(group, bytes);
  if (to == kWhole)
    return ringSeconds(group, bytes);
  return ringSeconds(group, bytes / group.devices);
}

int64_t addedGradientBytes(int64_t bytes, Layout leaves, Layout weight,
                           int devices) {
  if (weight == kWhole || leaves == kWhole || leaves == weight)
    return 0;
  const int64_t slice = sliceBytes(bytes, devices);
  return leaves == kPartial ? bytes - slice : slice;
}

} // namespace pipec::plan
