//===- CopyTest.cpp - pipec_copy ------------------------------------------===//

#include "Check.h"

#include <algorithm>
#include <numeric>

using namespace pipec::test;

namespace {

using Dims = std::vector<int64_t>;

/// Runs one copy on bytes and compares with a walk over all indices. `srcAt`
/// and `dstAt` are where index 0 lies.
void check(int size, const Dims &sizes, const Dims &src, const Dims &dst,
           int64_t srcAt, int64_t srcElements, int64_t dstAt,
           int64_t dstElements) {
  SCOPED_TRACE(testing::Message()
               << size << " bytes, sizes " << testing::PrintToString(sizes)
               << " src " << testing::PrintToString(src) << " dst "
               << testing::PrintToString(dst));
  PipecCopy d = {};
  d.element_size = size;
  d.rank = int32_t(sizes.size());
  std::copy(sizes.begin(), sizes.end(), d.size);
  std::copy(src.begin(), src.end(), d.src_stride);
  std::copy(dst.begin(), dst.end(), d.dst_stride);
  Buffer<unsigned char> from(srcElements * size), want(dstElements * size);
  Random random(sizes.size());
  for (int64_t i = 0; i < from.size(); ++i)
    from[i] = static_cast<unsigned char>(random.bits());
  int64_t count = 1;
  for (const int64_t s : sizes)
    count *= s;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, s = srcAt, t = dstAt;
    for (int j = int(sizes.size()) - 1; j >= 0; --j) {
      s += rest % sizes[j] * src[j];
      t += rest % sizes[j] * dst[j];
      rest /= sizes[j];
    }
    std::memcpy(want.data() + t * size, from.data() + s * size, size);
  }
  forThreadCounts([&](int threads) {
    Buffer<unsigned char> to(dstElements * size);
    pipec_copy(&d, from.data() + srcAt * size, to.data() + dstAt * size);
    ASSERT_TRUE(to.guardIntact());
    ASSERT_EQ(0, std::memcmp(to.data(), want.data(), want.size()));
  });
}

Dims dense(const Dims &sizes) {
  Dims strides(sizes.size());
  int64_t stride = 1;
  for (int i = int(sizes.size()) - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= sizes[i];
  }
  return strides;
}

int64_t product(const Dims &d) {
  return std::accumulate(d.begin(), d.end(), int64_t(1), std::multiplies<>());
}

/// The transpose of a dense tensor: result axis i is axis order[i].
void checkTranspose(int size, const Dims &shape,
                    const std::vector<int> &order) {
  Dims sizes, src;
  for (const int axis : order) {
    sizes.push_back(shape[axis]);
    src.push_back(dense(shape)[axis]);
  }
  check(size, sizes, src, dense(sizes), 0, product(shape), 0, product(shape));
}

TEST(Copy, Transposes) {
  for (const int size : {1, 2, 4, 8}) {
    checkTranspose(size, {37, 53}, {1, 0});
    checkTranspose(size, {64, 128}, {1, 0});
    checkTranspose(size, {1, 7}, {1, 0});
    checkTranspose(size, {16, 200}, {1, 0});
    checkTranspose(size, {3, 40, 21}, {0, 2, 1});
    checkTranspose(size, {3, 40, 21}, {2, 1, 0});
    checkTranspose(size, {3, 40, 21}, {1, 2, 0});
    checkTranspose(size, {4, 32, 12, 64}, {0, 2, 1, 3});
    checkTranspose(size, {2, 9, 5, 17}, {3, 1, 0, 2});
    checkTranspose(size, {2, 3, 2, 3, 2, 3, 2, 3}, {7, 6, 5, 4, 3, 2, 1, 0});
  }
}

TEST(Copy, EveryOrderOfFourAxes) {
  std::vector<int> order = {0, 1, 2, 3};
  do
    checkTranspose(4, {3, 17, 18, 5}, order);
  while (std::next_permutation(order.begin(), order.end()));
}

TEST(Copy, SlicesAndParts) {
  check(4, {10, 20}, {40, 1}, {20, 1}, 5, 400, 0, 200);        // columns out
  check(4, {10, 20}, {20, 1}, {50, 1}, 0, 200, 7, 500);        // columns in
  check(4, {6, 5, 4}, {80, 8, 2}, {20, 4, 1}, 1, 480, 0, 120); // every other
  check(8, {6, 5}, {5, 1}, {30, 3}, 0, 30, 0, 180);            // spread
  check(4, {300000}, {1}, {1}, 3, 300003, 5, 300005);
}

TEST(Copy, NegativeStrides) {
  for (const int size : {1, 2, 4, 8}) {
    check(size, {37}, {-1}, {1}, 36, 37, 0, 37);
    check(size, {37}, {1}, {-1}, 0, 37, 36, 37);
    check(size, {20, 30}, {30, -1}, {30, 1}, 29, 600, 0, 600);
    check(size, {20, 30}, {-30, 1}, {30, 1}, 570, 600, 0, 600);
    check(size, {20, 30}, {-1, 20}, {30, 1}, 19, 600, 0, 600);
    check(size, {20, 30}, {1, 20}, {-30, -1}, 0, 600, 599, 600);
  }
}

TEST(Copy, Broadcasts) {
  check(4, {5, 7, 9}, {0, 1, 0}, {63, 9, 1}, 0, 7, 0, 315);
  check(4, {40, 50}, {1, 0}, {50, 1}, 0, 40, 0, 2000);
  check(1, {100}, {0}, {1}, 0, 1, 0, 100);
}

TEST(Copy, EmptyAndScalar) {
  check(4, {}, {}, {}, 0, 1, 0, 1);
  check(4, {1, 1, 1}, {9, 9, 9}, {7, 7, 7}, 0, 1, 0, 1);
  check(4, {3, 0, 5}, {5, 5, 1}, {5, 5, 1}, 0, 15, 0, 15);
}

} // namespace
