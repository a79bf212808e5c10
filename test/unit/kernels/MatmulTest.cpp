//===- MatmulTest.cpp - pipec_matmul --------------------------------------===//

#include "Check.h"

using namespace pipec::test;

namespace {

template <typename T> constexpr int32_t kType = PIPEC_F32;
template <> constexpr int32_t kType<double> = PIPEC_F64;
template <> constexpr int32_t kType<Bf16> = PIPEC_BF16;

/// What products of T are added up in.
template <typename T> struct ResultOf {
  using type = T;
};
template <> struct ResultOf<Bf16> {
  using type = float;
};

struct Case {
  int64_t m, n, k;
  bool ta = false, tb = false, add = false;
  int64_t pad = 0; // extra elements per row of every operand
  std::vector<int64_t> batch = {};
  unsigned broadcastA = 0, broadcastB = 0, sumC = 0; // bit i: stride 0
};

int64_t product(const std::vector<int64_t> &v) {
  int64_t p = 1;
  for (const int64_t x : v)
    p *= x;
  return p;
}

/// Strides of dense matrices of `size` elements over the batch loops that bit i
/// of `fixed` does not exclude; returns the number of elements.
int64_t fillStrides(const Case &t, unsigned fixed, int64_t size, int64_t *out) {
  int64_t stride = size;
  for (int i = int(t.batch.size()) - 1; i >= 0; --i) {
    out[i] = fixed >> i & 1 ? 0 : stride;
    if (out[i])
      stride *= t.batch[i];
  }
  return stride;
}

struct Sizes {
  int64_t a, b, c;
};

PipecMatmul describe(const Case &t, int32_t dtype, Sizes &sizes) {
  PipecMatmul d = {};
  d.dtype = dtype;
  d.wide = dtype == PIPEC_BF16;
  d.transpose_a = t.ta;
  d.transpose_b = t.tb;
  d.accumulate = t.add;
  d.m = t.m;
  d.n = t.n;
  d.k = t.k;
  d.lda = (t.ta ? t.m : t.k) + t.pad;
  d.ldb = (t.tb ? t.k : t.n) + t.pad;
  d.ldc = t.n + t.pad;
  d.batch_rank = int32_t(t.batch.size());
  std::copy(t.batch.begin(), t.batch.end(), d.batch);
  sizes.a =
      fillStrides(t, t.broadcastA, d.lda * (t.ta ? t.k : t.m), d.stride_a);
  sizes.b =
      fillStrides(t, t.broadcastB, d.ldb * (t.tb ? t.n : t.k), d.stride_b);
  sizes.c = fillStrides(t, t.sumC, d.ldc * t.m, d.stride_c);
  return d;
}

/// Adds one product to the sums; row gaps of c keep an empty sum.
template <typename T>
void reference(const PipecMatmul &d, const T *a, const T *b, Sum *c) {
  for (int64_t i = 0; i < d.m; ++i)
    for (int64_t j = 0; j < d.n; ++j)
      for (int64_t q = 0; q < d.k; ++q)
        c[i * d.ldc + j].add(
            double(d.transpose_a ? a[q * d.lda + i] : a[i * d.lda + q]) *
            double(d.transpose_b ? b[j * d.ldb + q] : b[q * d.ldb + j]));
}

template <typename T, typename Result>
std::vector<Sum> expected(const PipecMatmul &d, const Buffer<T> &a,
                          const Buffer<T> &b, const Buffer<Result> &before) {
  std::vector<Sum> sums(before.size());
  if (d.accumulate)
    for (int64_t i = 0; i < before.size(); ++i)
      sums[i].add(before[i]);
  const int64_t count = product({d.batch, d.batch + d.batch_rank});
  for (int64_t item = 0; item < count; ++item) {
    int64_t rest = item, oa = 0, ob = 0, oc = 0;
    for (int i = d.batch_rank - 1; i >= 0; --i) {
      oa += rest % d.batch[i] * d.stride_a[i];
      ob += rest % d.batch[i] * d.stride_b[i];
      oc += rest % d.batch[i] * d.stride_c[i];
      rest /= d.batch[i];
    }
    reference(d, a.data() + oa, b.data() + ob, sums.data() + oc);
  }
  return sums;
}

template <typename T> void run(const Case &t) {
  SCOPED_TRACE(testing::Message()
               << t.m << "x" << t.n << "x" << t.k << (t.ta ? " ta" : "")
               << (t.tb ? " tb" : "") << (t.add ? " add" : "") << " batch "
               << testing::PrintToString(t.batch) << " type " << kType<T>);
  Sizes sizes;
  const PipecMatmul d = describe(t, kType<T>, sizes);
  using Result = typename ResultOf<T>::type;
  Buffer<T> a(sizes.a), b(sizes.b);
  Buffer<Result> before(sizes.c), first(sizes.c);
  Random random(t.m * 31 + t.n * 7 + t.k);
  random.fill(a);
  random.fill(b);
  if (t.add || t.pad) // with gaps: they must stay as they were
    random.fill(before);
  std::vector<Sum> want = expected(d, a, b, before);
  for (int64_t i = 0; i < sizes.c; ++i) // gaps between rows
    if (i % d.ldc >= d.n)
      want[i] = {double(before[i]), std::fabs(double(before[i]))};
  bool known = false;
  forThreadCounts([&](int threads) {
    Buffer<Result> c(sizes.c);
    std::memcpy(c.data(), before.data(), sizes.c * sizeof(Result));
    pipec_matmul(&d, a.data(), b.data(), c.data());
    ASSERT_TRUE(c.guardIntact());
    if (!known)
      expectNear(want, c.data(), "product");
    else
      expectSameBits(first, c, "product at other thread counts");
    std::memcpy(first.data(), c.data(), sizes.c * sizeof(Result));
    known = true;
  });
}

void runAll(const Case &t) {
  run<float>(t);
  run<double>(t);
  run<Bf16>(t);
}

TEST(Matmul, Sizes) {
  for (const int64_t m : {1, 2, 7, 14, 31, 64})
    for (const int64_t n : {1, 3, 16, 33, 64, 97})
      for (const int64_t k : {1, 2, 5, 64, 130})
        runAll({m, n, k});
}

TEST(Matmul, Transposes) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const bool add : {false, true})
        for (const int64_t pad : {0, 5}) {
          runAll({37, 53, 29, ta, tb, add, pad});
          runAll({129, 65, 300, ta, tb, add, pad});
        }
}

TEST(Matmul, DeepAndNarrow) { // where libraries like to split k by threads
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      run<float>({8, 8, 20000, ta, tb});
      run<Bf16>({8, 8, 20001, ta, tb});
      run<float>({64, 64, 6272, ta, tb});
      run<float>({1, 64, 3000, ta, tb});
      run<float>({64, 1, 3000, ta, tb});
    }
}

TEST(Matmul, Large) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      run<float>({260, 390, 770, ta, tb, true});
      run<float>({515, 129, 1030, ta, tb});
      run<Bf16>({260, 391, 771, ta, tb, true});
    }
  run<float>({3, 5000, 70});
  run<float>({5000, 3, 70});
}

TEST(Matmul, Batches) {
  runAll({5, 6, 7, false, false, false, 0, {3}});
  runAll({16, 9, 33, false, true, false, 2, {4, 3}});
  runAll({16, 9, 33, true, false, true, 0, {2, 3, 4}});
  runAll({8, 16, 8, false, true, false, 0, {2, 2, 3, 2}});
  run<float>({128, 64, 128, false, false, false, 0, {12}});
  run<float>({128, 64, 128, true, false, true, 0, {12}});
}

TEST(Matmul, Broadcast) {
  runAll({9, 10, 11, false, false, false, 0, {3, 4}, 1, 2});
  runAll({9, 10, 11, false, true, false, 0, {3, 4}, 0, 3});
  runAll({9, 10, 11, true, false, false, 0, {12}, 1, 0});
}

TEST(Matmul, SumsOverBatch) {
  runAll({9, 10, 11, true, false, false, 0, {5}, 0, 0, 1});
  runAll({9, 10, 11, true, false, true, 3, {3, 4}, 0, 0, 1});
  runAll({9, 10, 11, true, false, false, 0, {3, 4}, 0, 0, 2});
  runAll({9, 10, 11, true, false, true, 0, {3, 4}, 0, 0, 3});
}

TEST(Matmul, Empty) {
  runAll({0, 4, 5});
  runAll({4, 0, 5});
  runAll({4, 5, 0});
  runAll({4, 5, 0, false, false, true});
  runAll({4, 5, 6, false, false, false, 0, {0}});
  runAll({4, 5, 6, false, false, false, 0, {0}, 0, 0, 1}); // an empty sum: 0
}

TEST(Matmul, RowStrideOfAUnitRowIsFree) { // a vector may carry any stride
  PipecMatmul d = {};
  d.m = 1, d.n = 3, d.k = 2, d.lda = 1, d.ldb = 3, d.ldc = 1;
  const float a[] = {2, 3}, b[] = {1, 10, 100, 1, 1, 1};
  float c[3];
  pipec_matmul(&d, a, b, c);
  EXPECT_EQ(c[0], 5);
  EXPECT_EQ(c[1], 23);
  EXPECT_EQ(c[2], 203);
}

TEST(Matmul, NotFinitePropagates) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t size : {4, 40, 130}) {
    PipecMatmul d = {};
    d.m = d.n = d.k = d.lda = d.ldb = d.ldc = size;
    Buffer<float> a(size * size), b(size * size), c(size * size);
    for (int64_t i = 0; i < size * size; ++i)
      a[i] = b[i] = 0;
    a[1 * size + 2] = inf; // row 1: inf * 0 is NaN, inf * 2 is inf
    b[2 * size + 0] = 2;
    a[3 * size + 3] = nan; // row 3: NaN everywhere
    pipec_matmul(&d, a.data(), b.data(), c.data());
    EXPECT_EQ(c[1 * size + 0], inf);
    EXPECT_TRUE(std::isnan(c[1 * size + 1]));
    EXPECT_EQ(c[0], 0.0f);
    for (int64_t j = 0; j < size; ++j)
      EXPECT_TRUE(std::isnan(c[3 * size + j]));
  }
}

} // namespace
