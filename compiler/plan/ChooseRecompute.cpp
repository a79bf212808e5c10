#include "compiler/plan/ChooseRecompute.h"

#include "compiler/plan/PeakBytes.h"
#include "compiler/plan/StableOrder.h"

#include <algorithm>
#include <utility>

namespace pipec::plan {

namespace {

using Stages = std::vector<StagePlan>;

/// The stages of each device that is over the limit; of neighbours with the
/// same ones, as replicas have, those of the first.
std::vector<std::vector<size_t>> stagesOfFull(const Stages &stages,
                                              int64_t limit) {
  const std::vector<DeviceBytes> bytes = bytesOfDevices(stages);
  std::vector<std::vector<size_t>> devices(bytes.size());
  for (size_t s = 0; s < stages.size(); ++s)
    for (const int d : stages[s].devices)
      if (const auto device = static_cast<size_t>(d);
          bytes[device].total() > limit)
        devices[device].push_back(s);
  std::erase_if(devices, [](const auto &its) { return its.empty(); });
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return devices;
}

/// Bytes of a device whose stages are those of `now`, but `chosen` of `again`.
int64_t bytesOn(const std::vector<size_t> &device, const Stages &now,
                const Stages &again, const std::vector<bool> &chosen) {
  DeviceBytes bytes;
  for (const size_t s : device)
    bytes.add((chosen[s] ? again : now)[s].memory);
  return bytes.total();
}

/// The stages of a device that are not chosen yet, at most as many as all ways
/// to choose among them are few: those that spare most.
std::vector<size_t> candidates(const std::vector<size_t> &device,
                               const Stages &now, const Stages &again,
                               const std::vector<bool> &chosen) {
  constexpr size_t kMost = 6;
  std::vector<size_t> open;
  for (const size_t s : device)
    if (!chosen[s])
      open.push_back(s);
  sortBy(open, [&](size_t s) {
    return again[s].memory.total() - now[s].memory.total();
  });
  open.resize(std::min(open.size(), kMost));
  return open;
}

/// Chooses for a device that is over the limit what brings it below for the
/// least time, else what spares most. Whether anything was.
bool fitInto(int64_t limit, const std::vector<size_t> &device,
             const Stages &now, const Stages &again,
             std::vector<bool> &chosen) {
  const int64_t before = bytesOn(device, now, again, chosen);
  if (before <= limit)
    return false;
  const std::vector<size_t> open = candidates(device, now, again, chosen);
  std::pair<int64_t, double> best{before, 0}; // bytes over it, seconds
  std::vector<bool> found = chosen;
  for (unsigned bits = 1; bits < 1u << open.size(); ++bits) {
    std::vector<bool> other = chosen;
    double seconds = 0;
    for (size_t i = 0; i < open.size(); ++i)
      if (bits >> i & 1) {
        other[open[i]] = true;
        seconds += now[open[i]].forwardSeconds;
      }
    const int64_t bytes = bytesOn(device, now, again, other);
    const std::pair result{bytes <= limit ? 0 : bytes, seconds};
    if (result < best) {
      best = result;
      found = std::move(other);
    }
  }
  const bool isMore = found != chosen;
  chosen = std::move(found);
  return isMore;
}

} // namespace

std::vector<bool> chooseRecompute(const StepModel &model, const Split &split) {
  const size_t count = split.starts.size();
  const PlanRequest &request = model.request();
  std::vector<bool> chosen(count, request.recompute == Recompute::Full);
  if (request.recompute != Recompute::Auto)
    return chosen;
  Split tried = split;
  tried.recompute = chosen;
  Stages now = model.layOut(tried);
  auto devices = stagesOfFull(now, model.limit());
  if (devices.empty())
    return chosen;
  tried.recompute.assign(count, true);
  const Stages again = model.layOut(tried);
  // What a stage sends and no longer keeps may need slots on others.
  for (bool isMore = true; isMore && !devices.empty();) {
    isMore = false;
    for (const std::vector<size_t> &stages : devices)
      isMore |= fitInto(model.limit(), stages, now, again, chosen);
    tried.recompute = chosen;
    now = model.layOut(tried);
    devices = stagesOfFull(now, model.limit());
  }
  return chosen;
}

} // namespace pipec::plan
