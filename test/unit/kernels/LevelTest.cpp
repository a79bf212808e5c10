//===- LevelTest.cpp - processor levels and thread counts agree -----------===//
//
// Runs itself with PIPEC_KERNELS and OMP_NUM_THREADS set and compares digests
// of what the kernels compute: levels with fused multiply-add give the same
// bits, and so does every number of threads on every level.
//
//===----------------------------------------------------------------------===//

#include "Check.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

using namespace pipec::test;

namespace {

/// FNV-1a over the bytes of everything added.
class Digest {
public:
  template <typename T> void add(const Buffer<T> &b) {
    const unsigned char *p = reinterpret_cast<const unsigned char *>(b.data());
    for (size_t i = 0; i < b.size() * sizeof(T); ++i)
      value = (value ^ p[i]) * 0x100000001b3u;
  }
  uint64_t value = 0xcbf29ce484222325u;
};

template <typename T = float>
void addMatmul(Digest &digest, int64_t m, int64_t n, int64_t k, bool ta,
               bool tb, int64_t batch) {
  PipecMatmul d = {};
  d.dtype = sizeof(T) == 2 ? PIPEC_BF16 : PIPEC_F32;
  d.wide = d.dtype == PIPEC_BF16;
  d.transpose_a = ta, d.transpose_b = tb;
  d.m = m, d.n = n, d.k = k;
  d.lda = ta ? m : k, d.ldb = tb ? k : n, d.ldc = n;
  d.batch_rank = 1;
  d.batch[0] = batch;
  d.stride_a[0] = m * k, d.stride_b[0] = k * n, d.stride_c[0] = m * n;
  Buffer<T> a(batch * m * k), b(batch * k * n);
  Buffer<float> c(batch * m * n);
  Random random(m + n + k);
  random.fill(a);
  random.fill(b);
  pipec_matmul(&d, a.data(), b.data(), c.data());
  digest.add(c);
}

void addConv(Digest &digest, int64_t n, int64_t c, int64_t o, int64_t groups,
             int64_t size, int64_t kernel, int64_t stride, int64_t pad) {
  PipecConv d = {};
  d.spatial_rank = 2;
  d.groups = int32_t(groups);
  d.n = n, d.c = c, d.o = o;
  for (int i = 0; i < 2; ++i) {
    d.in[i] = size, d.kernel[i] = kernel, d.stride[i] = stride;
    d.dilation[i] = 1, d.pad_lo[i] = d.pad_hi[i] = pad;
    d.out[i] = (size + 2 * pad - kernel) / stride + 1;
  }
  Buffer<float> x(n * c * size * size), y(n * o * d.out[0] * d.out[1]);
  Buffer<float> w(o * c / groups * kernel * kernel);
  Random random(c + o + size);
  random.fill(x);
  random.fill(w);
  for (int which = 0; which < 3; ++which) {
    Buffer<char> scratch(pipec_conv_scratch_bytes(&d, which));
    if (which == PIPEC_CONV_FORWARD)
      pipec_conv_forward(&d, x.data(), w.data(), y.data(), scratch.data());
    else if (which == PIPEC_CONV_BACKWARD_INPUT)
      pipec_conv_backward_input(&d, y.data(), w.data(), x.data(),
                                scratch.data());
    else
      pipec_conv_backward_weight(&d, x.data(), y.data(), w.data(),
                                 scratch.data());
    digest.add(which == 0 ? y : which == 1 ? x : w);
  }
  pipec_release_conv(&d);
}

uint64_t digestOfKernels() {
  Digest digest;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      addMatmul(digest, 130, 200, 800, ta, tb, 1);
      addMatmul(digest, 5, 70, 33, ta, tb, 7);
      addMatmul(digest, 40, 36, 5000, ta, tb, 1);
      addMatmul<Bf16>(digest, 131, 203, 801, ta, tb, 1);
      addMatmul<Bf16>(digest, 5, 70, 32, ta, tb, 7);
    }
  addConv(digest, 2, 16, 24, 1, 15, 1, 1, 0);  // a product
  addConv(digest, 2, 3, 16, 1, 33, 7, 2, 3);   // the first layer
  addConv(digest, 2, 32, 40, 1, 17, 3, 2, 1);  // phases
  addConv(digest, 2, 32, 40, 1, 18, 3, 1, 1);  // Winograd
  addConv(digest, 2, 20, 20, 20, 30, 3, 1, 1); // depthwise
  addConv(digest, 2, 16, 16, 4, 30, 5, 2, 2);  // few channels per group
  return digest.value;
}

/// What this program prints with --digest under an environment.
std::string digestUnder(const std::string &level, int threads) {
  const std::string command =
      "PIPEC_KERNELS=" + level + " OMP_NUM_THREADS=" + std::to_string(threads) +
      " /proc/" + std::to_string(getpid()) + "/exe --digest";
  FILE *pipe = popen(command.c_str(), "r");
  char line[64] = "";
  if (pipe && !std::fgets(line, sizeof(line), pipe))
    line[0] = 0;
  if (pipe && pclose(pipe) != 0)
    return "failed: " + command;
  return line;
}

TEST(Levels, ThreadsDoNotMatter) {
  for (const char *level : {"best", "v4", "v3", "baseline"}) {
    const std::string one = digestUnder(level, 1);
    EXPECT_EQ(one.size(), 17u) << one;
    for (const int threads : {2, 3, 4, 7})
      EXPECT_EQ(one, digestUnder(level, threads)) << level << " " << threads;
  }
}

TEST(Levels, FusedLevelsAgree) {
#ifdef __x86_64__
  if (!__builtin_cpu_supports("avx512dq"))
    GTEST_SKIP() << "this processor has one such level";
  EXPECT_EQ(digestUnder("v4", 2), digestUnder("v3", 2));
#else
  GTEST_SKIP() << "this processor has one level";
#endif
}

} // namespace

int main(int argc, char **argv) {
  if (argc == 2 && std::string(argv[1]) == "--digest") {
    std::printf("%016llx\n", (unsigned long long)digestOfKernels());
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
