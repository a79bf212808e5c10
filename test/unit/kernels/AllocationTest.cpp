//===- AllocationTest.cpp - kernels allocate nothing once prepared --------===//

#include "Check.h"

#include <atomic>
#include <cstdlib>

#if __has_feature(address_sanitizer)
#define PIPEC_COUNTS 0 // the sanitizer's malloc must stay
#else
#define PIPEC_COUNTS 1
#endif

namespace {
std::atomic<int64_t> allocations{0};
}

#if PIPEC_COUNTS
extern "C" {
void *__libc_malloc(size_t);
void *__libc_memalign(size_t, size_t);
void *malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void *aligned_alloc(size_t alignment, size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void **to, size_t alignment, size_t size) {
  ++allocations;
  *to = __libc_memalign(alignment, size);
  return *to ? 0 : 12;
}
}
#endif

namespace {

using namespace pipec::test;

/// Convolutions of every kind of path, and products.
struct Work {
  PipecConv convs[4] = {};
  PipecMatmul matmul = {}, narrow = {};
  Buffer<float> a{1 << 20}, b{1 << 20}, c{1 << 20}, scratch{8 << 20};

  Work() {
    const int64_t shapes[4][5] = {// channels, outputs, groups, kernel, size
                                  {32, 32, 1, 3, 28},
                                  {32, 48, 1, 1, 28},
                                  {3, 32, 1, 7, 40},
                                  {64, 64, 64, 3, 28}};
    for (int i = 0; i < 4; ++i) {
      PipecConv &d = convs[i];
      d.spatial_rank = 2;
      d.n = 2, d.c = shapes[i][0], d.o = shapes[i][1];
      d.groups = int32_t(shapes[i][2]);
      for (int j = 0; j < 2; ++j) {
        d.in[j] = d.out[j] = shapes[i][4];
        d.kernel[j] = shapes[i][3];
        d.stride[j] = d.dilation[j] = 1;
        d.pad_lo[j] = d.pad_hi[j] = shapes[i][3] / 2;
      }
    }
    matmul.m = matmul.n = matmul.k = 300;
    matmul.lda = matmul.ldb = matmul.ldc = 300;
    narrow = matmul;
    narrow.dtype = PIPEC_BF16, narrow.wide = 1;
    Random random(1);
    random.fill(a);
    random.fill(b);
  }

  void run() {
    pipec_matmul(&matmul, a.data(), b.data(), c.data());
    pipec_matmul(&narrow, a.data(), b.data(), c.data());
    for (PipecConv &d : convs) {
      pipec_conv_forward(&d, a.data(), b.data(), c.data(), scratch.data());
      pipec_conv_backward_input(&d, a.data(), b.data(), c.data(),
                                scratch.data());
      pipec_conv_backward_weight(&d, a.data(), b.data(), c.data(),
                                 scratch.data());
    }
    pipec_sum_squares(a.data(), a.size());
  }
};

TEST(Allocation, NoneAfterPreparation) {
  if (!PIPEC_COUNTS)
    GTEST_SKIP() << "not under the address sanitizer";
  pipec_set_threads(3);
  Work work;
  for (PipecConv &d : work.convs)
    for (int which = 0; which < 3; ++which) {
      ASSERT_LE(pipec_conv_scratch_bytes(&d, which), work.scratch.size() * 4);
      pipec_prepare_conv(&d, which);
    }
  const int64_t before = allocations;
  EXPECT_GT(before, 0); // the counter works
  work.run();
  work.run();
  EXPECT_EQ(allocations, before);
}

} // namespace
