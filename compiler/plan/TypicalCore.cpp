//===- TypicalCore.cpp - what a core takes that nobody has timed ----------===//
#include "compiler/plan/TypicalCore.h"

#include "support/Failure.h"

#include <algorithm>
#include <initializer_list>

namespace pipec::plan {
namespace {

/// `costs` in nanoseconds, in the order of the amounts' names; in that of
/// kernelAmounts().
std::vector<double> nanoseconds(const char *kernel,
                                std::initializer_list<double> costs) {
  const std::vector<std::string> &names = kernelAmounts().at(kernel);
  if (names.size() != costs.size())
    throw Failure(Exit::Internal, std::string("TypicalCore.def: ") + kernel +
                                      " has other amounts");
  std::vector<std::string> sorted = names;
  std::ranges::sort(sorted);
  std::vector<double> seconds;
  for (const std::string &name : names)
    seconds.push_back(
        std::data(costs)[std::ranges::find(sorted, name) - sorted.begin()] *
        1e-9);
  return seconds;
}

/// Cores with registers of 64 bytes are later ones: with these costs and such
/// registers fourteen models are predicted to take 1.7 to 2.5 times as long as
/// on Zen 5 (docs/planner.md), which is the fastest of them.
constexpr int kWideLanes = 16;
constexpr double kWideShare = 0.65;

void takeShare(DeviceModel &device, double share) {
  for (auto *kernels : {&device.kernels, &device.farKernels})
    for (auto &[name, costs] : *kernels)
      for (double &cost : costs)
        cost *= share;
}

/// A processor that multiplies pairs of bf16 takes half as long for the steps
/// of a product; packing is the same.
void multiplyPairs(DeviceModel &device) {
  const std::vector<std::string> &names = kernelAmounts().at("product");
  const auto step = std::ranges::find(names, "step") - names.begin();
  for (auto *kernels : {&device.kernels, &device.farKernels}) {
    std::vector<double> costs = kernels->at("product");
    costs[step] *= device.flopsF32 / device.flopsBF16;
    (*kernels)["product-bf16"] = costs;
  }
}

} // namespace

DeviceModel typicalCore(DeviceModel device, const ProductTile &tile) {
#define FIGURE(member, microseconds) device.member = (microseconds) * 1e-6;
#define SHARE(member, share) device.member = (share);
#define RATE(member, giga) device.member = (giga) * 1e9;
#define CACHE(member, kibibytes) device.member = (kibibytes) * 1024.0;
#define NEAR(name, ...) device.kernels[name] = nanoseconds(name, {__VA_ARGS__});
#define FAR(name, ...)                                                         \
  device.farKernels[name] = nanoseconds(name, {__VA_ARGS__});
#define PASS(kibibytes, cost)                                                  \
  device.passes.push_back({(kibibytes) * 1024, (cost) * 1e-9 / 1024});
#include "compiler/plan/TypicalCore.def"
  device.tile = tile;
  if (tile.lanes >= kWideLanes)
    takeShare(device, kWideShare);
  if (device.flopsBF16 > device.flopsF32)
    multiplyPairs(device);
  return device;
}

DeviceModel namedDevice(const std::string &name) {
  const DeviceModel &row = deviceModel(name);
  return row.kind == "cpu" ? typicalCore(row, {}) : row;
}

} // namespace pipec::plan
