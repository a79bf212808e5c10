//===- GatherTest.cpp - pipec_gather, pipec_scatter_add -------------------===//

#include "Check.h"

using namespace pipec::test;

namespace {

template <typename Id>
Buffer<Id> randomIds(int64_t n, int64_t axis, uint64_t seed) {
  Buffer<Id> ids(n);
  Random random(seed);
  for (int64_t i = 0; i < n; ++i)
    ids[i] = Id(random.below(2 * axis) - axis); // half of them from the end
  return ids;
}

template <typename T, typename Id>
void check(int64_t outer, int64_t axis, int64_t inner, int64_t n) {
  SCOPED_TRACE(testing::Message()
               << outer << " " << axis << " " << inner << " " << n);
  const PipecGather d = {sizeof(T) == 8 ? PIPEC_F64 : PIPEC_F32,
                         sizeof(Id) == 8 ? PIPEC_I64 : PIPEC_I32,
                         outer,
                         axis,
                         inner,
                         n};
  Buffer<T> table(outer * axis * inner), dy(outer * n * inner);
  const Buffer<Id> ids = randomIds<Id>(n, axis, axis);
  Random random(n);
  random.fill(table);
  random.fill(dy);
  std::vector<Sum> want(table.size());
  for (int64_t i = 0; i < table.size(); ++i)
    want[i].add(table[i]);
  Buffer<T> y(dy.size()), wantY(dy.size()), first(table.size());
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t c = 0; c < inner; ++c) {
        const int64_t row = ids[i] < 0 ? ids[i] + axis : ids[i];
        wantY[(o * n + i) * inner + c] = table[(o * axis + row) * inner + c];
        want[(o * axis + row) * inner + c].add(dy[(o * n + i) * inner + c]);
      }
  bool known = false;
  forThreadCounts([&](int threads) {
    pipec_gather(&d, table.data(), ids.data(), y.data());
    expectSameBits(wantY, y, "gather");
    Buffer<T> grad(table.size());
    std::memcpy(grad.data(), table.data(), table.size() * sizeof(T));
    pipec_scatter_add(&d, ids.data(), dy.data(), grad.data());
    ASSERT_TRUE(grad.guardIntact() && y.guardIntact());
    expectNear(want, grad.data(), "scatter-add");
    if (known)
      expectSameBits(first, grad, "scatter-add");
    std::memcpy(first.data(), grad.data(), grad.size() * sizeof(T));
    known = true;
  });
  EXPECT_EQ(pipec_take_fault(nullptr, nullptr), 0);
}

TEST(Gather, RowsAndTheirGradient) {
  check<float, int64_t>(1, 50, 96, 300);
  check<float, int32_t>(1, 3, 768, 128);
  check<float, int64_t>(5, 7, 3, 40);
  check<float, int64_t>(64, 9, 1, 20);
  check<float, int32_t>(1, 1000, 1, 5000);
  check<double, int64_t>(2, 11, 130, 33);
  check<double, int32_t>(1, 5, 1, 9);
  check<float, int64_t>(3, 4, 5, 0);
  check<float, int64_t>(0, 4, 5, 6);
  check<float, int64_t>(2, 4, 0, 6);
}

TEST(Gather, IntegersAndBytes) {
  const int64_t ids[] = {2, -3, 0};
  const int64_t wide[] = {10, 20, 30};
  int64_t wideOut[3];
  PipecGather d = {PIPEC_I64, PIPEC_I64, 1, 3, 1, 3};
  pipec_gather(&d, wide, ids, wideOut);
  EXPECT_EQ(wideOut[0], 30);
  EXPECT_EQ(wideOut[1], 10);
  const int8_t bytes[] = {1, 2, 3, 4, 5, 6};
  int8_t bytesOut[6];
  d = {PIPEC_I8, PIPEC_I64, 1, 3, 2, 3};
  pipec_gather(&d, bytes, ids, bytesOut);
  EXPECT_EQ(bytesOut[0], 5);
  EXPECT_EQ(bytesOut[3], 2);
  const int32_t words[] = {7, 8, 9};
  int32_t wordsOut[3];
  d = {PIPEC_I32, PIPEC_I64, 1, 3, 1, 3};
  pipec_gather(&d, words, ids, wordsOut);
  EXPECT_EQ(wordsOut[0], 9);
}

template <typename T> void addsIntegers(PipecType type, T large) {
  const int64_t ids[] = {2, 0, 2};
  const T dy[] = {large, 1, 1};
  T grad[3] = {};
  const PipecGather d = {type, PIPEC_I64, 1, 3, 1, 3};
  pipec_scatter_add(&d, ids, dy, grad);
  EXPECT_EQ(grad[0], 1);
  EXPECT_EQ(grad[1], 0);
  EXPECT_EQ(grad[2], large + 1);
}

TEST(Gather, IntegersAreAddedAsIntegers) {
  addsIntegers<int8_t>(PIPEC_I8, 100);
  addsIntegers<int32_t>(PIPEC_I32, (1 << 24) + 2);
  addsIntegers<int64_t>(PIPEC_I64, (int64_t(1) << 53) + 2);
}

TEST(Gather, OutOfRangeIsSeenAndHarmless) {
  const float table[] = {1, 2, 3};
  const int64_t ids[] = {0, 3, -4};
  const float dy[] = {10, 20, 30};
  float y[3], grad[3] = {};
  const PipecGather d = {PIPEC_F32, PIPEC_I64, 1, 3, 1, 3};
  pipec_gather(&d, table, ids, y);
  EXPECT_EQ(y[0], 1);
  EXPECT_TRUE(std::isnan(y[1]) && std::isnan(y[2]));
  int64_t id = 0, axis = 0;
  EXPECT_EQ(pipec_take_fault(&id, &axis), 1);
  EXPECT_EQ(id, 3);
  EXPECT_EQ(axis, 3);
  EXPECT_EQ(pipec_take_fault(nullptr, nullptr), 0);
  pipec_scatter_add(&d, ids, dy, grad);
  EXPECT_EQ(grad[0], 10);
  EXPECT_EQ(grad[1], 0);
  EXPECT_EQ(grad[2], 0);
  EXPECT_EQ(pipec_take_fault(nullptr, nullptr), 1);
}

} // namespace
