//===- ReduceTest.cpp - pipec_parallel, pipec_sum_squares, pipec_add ------===//

#include "Check.h"

#include <atomic>

using namespace pipec::test;

namespace {

struct Visits {
  std::vector<std::atomic<int>> count;
  int64_t n, grain;
  std::atomic<int> ranges{0};
  std::atomic<bool> misaligned{false};
  Visits(int64_t n, int64_t grain) : count(n), n(n), grain(grain) {}
};

void visit(int64_t lo, int64_t hi, void *const *args) {
  Visits &v = *static_cast<Visits *>(args[0]);
  ++v.ranges;
  if (lo % v.grain || (hi % v.grain && hi != v.n) || lo >= hi)
    v.misaligned = true;
  for (int64_t i = lo; i < hi; ++i)
    ++v.count[i];
}

TEST(Parallel, CoversEveryIndexOnceInWholeGrains) {
  forThreadCounts([](int threads) {
    for (const int64_t n : {0, 1, 2, 3, 7, 64, 1001})
      for (const int64_t grain : {1, 2, 32, 5000}) {
        Visits v(n, grain);
        void *const args[] = {&v};
        pipec_parallel(visit, n, grain, args);
        for (int64_t i = 0; i < n; ++i)
          ASSERT_EQ(v.count[i], 1) << i << " of " << n;
        EXPECT_FALSE(v.misaligned);
        const int64_t chunks = (n + grain - 1) / grain;
        EXPECT_LE(v.ranges, threads == 1 ? 1 : chunks);
      }
  });
}

void nested(int64_t lo, int64_t hi, void *const *args) {
  for (int64_t i = lo; i < hi; ++i) {
    void *const inner[] = {args[i]};
    pipec_parallel(visit, 100, 1, inner);
  }
}

TEST(Parallel, NestedRunsOnTheCaller) {
  pipec_set_threads(2);
  Visits a(100, 1), b(100, 1);
  void *const args[] = {&a, &b};
  pipec_parallel(nested, 2, 1, args);
  for (Visits *v : {&a, &b}) {
    EXPECT_EQ(v->ranges, 1);
    for (auto &count : v->count)
      EXPECT_EQ(count, 1);
  }
}

TEST(SumSquares, FixedOrder) {
  for (const int64_t n : {0, 1, 31, 32, 33, 16384, 16385, 100001, 9000000}) {
    Buffer<float> x(n);
    Random(n).fill(x);
    Sum want;
    for (int64_t i = 0; i < n; ++i)
      want.add(double(x[i]) * x[i]);
    double first = 0;
    bool known = false;
    forThreadCounts([&](int threads) {
      const double got = pipec_sum_squares(x.data(), n);
      EXPECT_NEAR(got, want.value, 1e-12 * want.value);
      if (known)
        EXPECT_EQ(got, first);
      first = got;
      known = true;
    });
  }
}

TEST(SumSquares, NotFinitePropagates) {
  Buffer<float> x(1000);
  Random(1).fill(x);
  x[777] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(pipec_sum_squares(x.data(), 1000),
            std::numeric_limits<double>::infinity());
  x[999] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(pipec_sum_squares(x.data(), 1000)));
}

TEST(Add, EveryElement) {
  for (const int64_t n : {0, 1, 8191, 8192, 50000}) {
    Buffer<float> a(n), b(n);
    for (int64_t i = 0; i < n; ++i) {
      a[i] = float(i);
      b[i] = float(2 * i + 1);
    }
    pipec_add(a.data(), b.data(), n);
    EXPECT_TRUE(a.guardIntact());
    for (int64_t i = 0; i < n; ++i)
      ASSERT_EQ(a[i], float(i) + float(2 * i + 1));
  }
}

} // namespace
