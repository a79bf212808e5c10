//===- RoundedWeights.cpp - copies of weights for products ----------------===//
#include "runtime/state/RoundedWeights.h"
#include "runtime/program/Versions.h"
#include "support/NarrowFloat.h"

#include <algorithm>

namespace pipec {

/// In pieces of whole rows that a host has room for, and of one row in parts.
void roundPiece(Device &device, char *weights, const plan::Rounded &piece) {
  constexpr int64_t kMost = 1 << 20; // numbers at a time
  const bool isDense = piece.pitch == piece.row;
  const int64_t row = isDense ? 1 : piece.row,
                pitch = isDense ? 1 : piece.pitch,
                rows = isDense ? piece.rows * piece.row : piece.rows,
                most = std::min(rows, std::max<int64_t>(1, kMost / pitch));
  std::vector<float> from(static_cast<size_t>(most * row));
  std::vector<uint16_t> to(static_cast<size_t>(most * pitch));
  for (int64_t at = 0; at < rows; at += most) {
    const int64_t here = std::min(most, rows - at);
    device.download(from.data(), weights + piece.offset + at * row * 4,
                    here * row * 4);
    for (int64_t r = 0; r < here; ++r)
      std::transform(from.begin() + r * row, from.begin() + (r + 1) * row,
                     to.begin() + r * pitch, toBfloat);
    device.upload(weights + piece.to + at * pitch * 2, to.data(),
                  here * pitch * 2);
  }
}

void roundWeights(RankState &state, int64_t steps) {
  for (auto &unit : state.units) {
    const plan::Stage &stage = *unit->stage;
    const auto [oldest, latest] = plan::versionsAfter(state.plan, stage, steps);
    for (int64_t version = oldest; version <= latest; ++version)
      for (const plan::Rounded &piece : stage.rounded)
        roundPiece(*state.device, unit->memory.weights(version), piece);
  }
}

} // namespace pipec
