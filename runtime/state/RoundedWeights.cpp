//===- RoundedWeights.cpp - copies of weights for products ----------------===//
#include "runtime/state/RoundedWeights.h"
#include "runtime/program/Versions.h"
#include "support/NarrowFloat.h"

#include <algorithm>

namespace pipec {

/// Of a whole version, in pieces that a host has room for.
static void roundVersion(Device &device, char *weights,
                         const plan::Rounded &rounded) {
  constexpr int64_t kPiece = 1 << 20;
  const int64_t count = rounded.bytes / 4;
  std::vector<float> from(static_cast<size_t>(std::min(kPiece, count)));
  std::vector<uint16_t> to(from.size());
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t here = std::min(kPiece, count - at);
    device.download(from.data(), weights + at * 4, here * 4);
    std::transform(from.begin(), from.begin() + here, to.begin(), toBfloat);
    device.upload(weights + rounded.offset + at * 2, to.data(), here * 2);
  }
}

void roundWeights(RankState &state, int64_t steps) {
  for (auto &unit : state.units) {
    const plan::Stage &stage = *unit->stage;
    if (stage.rounded.bytes == 0)
      continue;
    const auto [oldest, latest] = plan::versionsAfter(state.plan, stage, steps);
    for (int64_t version = oldest; version <= latest; ++version)
      roundVersion(*state.device, unit->memory.weights(version), stage.rounded);
  }
}

} // namespace pipec
