//===- RoundedWeightsTest.cpp - copies of weights that files fill in ------===//
#include "runtime/state/RoundedWeights.h"
#include "support/NarrowFloat.h"

#include <gtest/gtest.h>

using namespace pipec;

namespace {

/// The piece's numbers count up by halves, so that bfloat16 cannot hold most;
/// all around it is 0x5a.
void check(const plan::Rounded &piece) {
  plan::Plan plan;
  plan.cluster.kind = "cpu";
  plan.ranks.emplace_back();
  plan.ranks[0].program.kind = "step";
  const auto device = openDevice({plan, 0});
  const int64_t end = piece.to + piece.rows * piece.pitch * 2, bytes = end + 64;
  std::vector<char> memory(static_cast<size_t>(bytes), 0x5a);
  auto *from = reinterpret_cast<float *>(&memory[piece.offset]);
  for (int64_t i = 0; i < piece.rows * piece.row; ++i)
    from[i] = 0.5f * static_cast<float>(i) - 77;
  char *weights = device->allocate(bytes);
  device->upload(weights, memory.data(), bytes);
  roundPiece(*device, weights, piece);
  std::vector<char> after(memory.size());
  device->download(after.data(), weights, bytes);
  device->release(weights, bytes);
  EXPECT_TRUE(
      std::equal(memory.begin(), memory.begin() + piece.to, after.begin()));
  EXPECT_TRUE(
      std::equal(memory.begin() + end, memory.end(), after.begin() + end));
  int64_t wrong = 0;
  const auto *to = reinterpret_cast<const uint16_t *>(&after[piece.to]);
  for (int64_t r = 0; r < piece.rows; ++r)
    for (int64_t i = 0; i < piece.row; ++i)
      wrong += to[r * piece.pitch + i] != toBfloat(from[r * piece.row + i]);
  EXPECT_EQ(wrong, 0);
}

} // namespace

/// More than what is rounded at a time, and a rest.
TEST(RoundedWeights, WithoutGaps) {
  const int64_t count = 5 * (1 << 19) + 32;
  check({64, 1, count, 64 + 4 * count, count});
}

TEST(RoundedWeights, WithGaps) {
  check({0, 700, 1999, 700 * 1999 * 4 / 64 * 64 + 64, 2048});
  check({0, 3, (1 << 20) + 1, 3 * ((1 << 22) + 64), (1 << 20) + 64});
}
