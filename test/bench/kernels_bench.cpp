//===- kernels_bench.cpp - speed of the CPU kernel library ----------------===//
//
//   OMP_NUM_THREADS=2 kernels_bench --benchmark_filter=matmul
//
// "GF/s" counts the nominal operations of a product or convolution, padding
// included.
//
//===----------------------------------------------------------------------===//

#include "kernels_shapes.h"

#include "runtime/kernels/cpu/Kernels.h"
#include "support/NarrowFloat.h"

#include <benchmark/benchmark.h>

#ifdef PIPEC_BENCH_DNNL
#include <dnnl.h>
#endif

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

namespace {

using namespace pipec::bench;

struct Free {
  void operator()(float *p) const {
    ::operator delete[](p, std::align_val_t(64));
  }
};
using Array = std::unique_ptr<float[], Free>;

/// `n` aligned floats in [-1, 1).
Array randomArray(int64_t n) {
  Array a(new (std::align_val_t(64)) float[n + 16]);
  uint32_t state = 12345;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    a[i] = float(int32_t(state)) * 0x1p-31f;
  }
  return a;
}

void setRate(benchmark::State &state, double operations) {
  state.counters["GF/s"] = benchmark::Counter(
      operations * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

struct Operands {
  Array a, b, c;
  explicit Operands(const MatmulShape &s)
      : a(randomArray(s.batch * s.m * s.k)),
        b(randomArray(s.batch * s.k * s.n)),
        c(randomArray(s.batch * s.m * s.n)) {}
};

double operationsOf(const MatmulShape &s) {
  return 2.0 * double(s.batch) * double(s.m) * double(s.n) * double(s.k);
}

PipecMatmul describe(const MatmulShape &s) {
  PipecMatmul d = {};
  d.dtype = PIPEC_F32;
  d.transpose_a = s.transposeA;
  d.transpose_b = s.transposeB;
  d.m = s.m, d.n = s.n, d.k = s.k;
  d.lda = s.transposeA ? s.m : s.k;
  d.ldb = s.transposeB ? s.k : s.n;
  d.ldc = s.n;
  if (s.batch > 1) {
    d.batch_rank = 1;
    d.batch[0] = s.batch;
    d.stride_a[0] = s.m * s.k;
    d.stride_b[0] = s.k * s.n;
    d.stride_c[0] = s.m * s.n;
  }
  return d;
}

void matmul(benchmark::State &state, const MatmulShape &s) {
  const Operands x(s);
  const PipecMatmul d = describe(s);
  for (auto _ : state)
    pipec_matmul(&d, x.a.get(), x.b.get(), x.c.get());
  setRate(state, operationsOf(s));
}

/// The numbers of an array as bf16, in its own memory.
void narrow(Array &array, int64_t n) {
  auto *narrow = reinterpret_cast<char *>(array.get());
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = pipec::toBfloat(array[i]);
    std::memcpy(narrow + 2 * i, &bits, sizeof bits);
  }
}

/// Of bf16, with sums in f32.
void narrowMatmul(benchmark::State &state, const MatmulShape &s) {
  Operands x(s);
  narrow(x.a, s.batch * s.m * s.k);
  narrow(x.b, s.batch * s.k * s.n);
  PipecMatmul d = describe(s);
  d.dtype = PIPEC_BF16;
  d.wide = 1;
  for (auto _ : state)
    pipec_matmul(&d, x.a.get(), x.b.get(), x.c.get());
  setRate(state, operationsOf(s));
}

#ifdef PIPEC_BENCH_DNNL
void sgemm(benchmark::State &state, const MatmulShape &s) {
  const Operands x(s);
  for (auto _ : state)
    for (int64_t i = 0; i < s.batch; ++i)
      dnnl_sgemm(s.transposeA ? 'T' : 'N', s.transposeB ? 'T' : 'N', s.m, s.n,
                 s.k, 1.0f, x.a.get() + i * s.m * s.k, s.transposeA ? s.m : s.k,
                 x.b.get() + i * s.k * s.n, s.transposeB ? s.k : s.n, 0.0f,
                 x.c.get() + i * s.m * s.n, s.n);
  setRate(state, operationsOf(s));
}
#endif

PipecConv describe(const ConvShape &s, int32_t layout) {
  PipecConv d = {};
  d.dtype = PIPEC_F32;
  d.spatial_rank = 2;
  d.groups = int32_t(s.groups);
  d.n = kImages, d.c = s.c, d.o = s.o;
  d.x_layout = d.y_layout = layout;
  for (int i = 0; i < 2; ++i) {
    d.in[i] = s.in, d.kernel[i] = s.kernel, d.stride[i] = s.stride;
    d.dilation[i] = 1, d.pad_lo[i] = d.pad_hi[i] = s.pad;
    d.out[i] = (s.in + 2 * s.pad - s.kernel) / s.stride + 1;
  }
  return d;
}

void convolution(benchmark::State &state, const ConvShape &s, int which,
                 int32_t layout) {
  PipecConv d = describe(s, layout);
  const int64_t plane = d.out[0] * d.out[1];
  const int64_t c = (s.c + 15) / 16 * 16, o = (s.o + 15) / 16 * 16;
  const Array x = randomArray(kImages * c * s.in * s.in);
  const Array y = randomArray(kImages * o * plane);
  const int64_t taps = s.c / s.groups * s.kernel * s.kernel;
  const Array w = randomArray(s.o * taps);
  const Array scratch = randomArray(pipec_conv_scratch_bytes(&d, which) / 4);
  pipec_prepare_conv(&d, which);
  for (auto _ : state)
    if (which == PIPEC_CONV_FORWARD)
      pipec_conv_forward(&d, x.get(), w.get(), y.get(), scratch.get());
    else if (which == PIPEC_CONV_BACKWARD_INPUT)
      pipec_conv_backward_input(&d, y.get(), w.get(), x.get(), scratch.get());
    else
      pipec_conv_backward_weight(&d, x.get(), y.get(), w.get(), scratch.get());
  pipec_release_conv(&d);
  setRate(state, 2.0 * double(kImages * s.o * plane) * double(taps));
}

void transposeHeads(
    benchmark::State &state) { // [4, 128, 12, 64] -> heads first
  const Array x = randomArray(4 * 128 * 768), y = randomArray(4 * 128 * 768);
  const PipecCopy d = {4,
                       4,
                       {4, 12, 128, 64},
                       {128 * 768, 64, 768, 1},
                       {128 * 768, 128 * 64, 64, 1}};
  for (auto _ : state)
    pipec_copy(&d, x.get(), y.get());
  state.SetBytesProcessed(state.iterations() * 4 * 128 * 768 * 8);
}

void transposeMatrix(benchmark::State &state) { // 768 x 3072
  const Array x = randomArray(768 * 3072), y = randomArray(768 * 3072);
  const PipecCopy d = {4, 2, {3072, 768}, {1, 3072}, {768, 1}};
  for (auto _ : state)
    pipec_copy(&d, x.get(), y.get());
  state.SetBytesProcessed(state.iterations() * 768 * 3072 * 8);
}

PipecPool stemPool() {
  PipecPool d = {};
  d.spatial_rank = 2;
  d.n = kImages, d.c = 64;
  for (int i = 0; i < 2; ++i) {
    d.in[i] = 112, d.out[i] = 56, d.kernel[i] = 3, d.stride[i] = 2;
    d.dilation[i] = 1, d.pad_lo[i] = d.pad_hi[i] = 1;
  }
  return d;
}

void maxPool(benchmark::State &state, bool gradient) {
  const PipecPool d = stemPool();
  const Array x = randomArray(kImages * 64 * 112 * 112);
  const Array y = randomArray(kImages * 64 * 56 * 56);
  const std::unique_ptr<int32_t[]> index(new int32_t[kImages * 64 * 56 * 56]);
  pipec_max_pool(&d, x.get(), y.get(), index.get());
  for (auto _ : state)
    gradient ? pipec_max_pool_grad(&d, y.get(), index.get(), x.get())
             : pipec_max_pool(&d, x.get(), y.get(), index.get());
}

void globalAverage(benchmark::State &state, bool gradient) {
  PipecPool d = {};
  d.spatial_rank = 2;
  d.n = kImages, d.c = 2048;
  for (int i = 0; i < 2; ++i)
    d.in[i] = d.kernel[i] = 7, d.out[i] = d.stride[i] = d.dilation[i] = 1;
  const Array x = randomArray(kImages * 2048 * 49),
              y = randomArray(kImages * 2048);
  for (auto _ : state)
    gradient ? pipec_avg_pool_grad(&d, y.get(), x.get())
             : pipec_avg_pool(&d, x.get(), y.get());
}

void embedding(benchmark::State &state, bool gradient) {
  const Array table = randomArray(50257 * 768), y = randomArray(512 * 768);
  int64_t ids[512];
  for (int i = 0; i < 512; ++i)
    ids[i] = int64_t(i) * 7919 % 50257;
  const PipecGather d = {PIPEC_F32, PIPEC_I64, 1, 50257, 768, 512};
  for (auto _ : state)
    gradient ? pipec_scatter_add(&d, ids, y.get(), table.get())
             : pipec_gather(&d, table.get(), ids, y.get());
}

void sumSquares(benchmark::State &state) {
  const Array x = randomArray(10000000);
  for (auto _ : state)
    benchmark::DoNotOptimize(pipec_sum_squares(x.get(), 10000000));
  state.SetBytesProcessed(state.iterations() * 40000000);
}

void add(benchmark::State &state) {
  const Array x = randomArray(10000000), y = randomArray(10000000);
  for (auto _ : state)
    pipec_add(x.get(), y.get(), 10000000);
  state.SetBytesProcessed(state.iterations() * 120000000);
}

void registerAll() {
  const auto name = [](const char *family, const std::string &what) {
    return std::string(family) + "/" + what;
  };
  const auto declare = [](const std::string &n, auto body) {
    benchmark::RegisterBenchmark(n.c_str(), body)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  };
  for (const MatmulShape &s : kGpt2) {
    declare(name("matmul", s.name), [&s](auto &state) { matmul(state, s); });
    declare(name("matmul_bf16", s.name),
            [&s](auto &state) { narrowMatmul(state, s); });
#ifdef PIPEC_BENCH_DNNL
    declare(name("sgemm", s.name), [&s](auto &state) { sgemm(state, s); });
#endif
  }
  static const char *const kinds[] = {"forward", "input", "weight"};
  for (const ConvShape &s : kResNet50)
    for (int which = 0; which < 3; ++which)
      for (const int32_t layout : {PIPEC_PLAIN, PIPEC_BLOCKED})
        declare(name(layout ? "conv_blocked" : "conv",
                     std::string(s.name) + "/" + kinds[which]),
                [&s, which, layout](auto &state) {
                  convolution(state, s, which, layout);
                });
  declare("copy/heads", transposeHeads);
  declare("copy/matrix", transposeMatrix);
  declare("pool/max", [](auto &s) { maxPool(s, false); });
  declare("pool/max.grad", [](auto &s) { maxPool(s, true); });
  declare("pool/average", [](auto &s) { globalAverage(s, false); });
  declare("pool/average.grad", [](auto &s) { globalAverage(s, true); });
  declare("rows/gather", [](auto &s) { embedding(s, false); });
  declare("rows/scatter_add", [](auto &s) { embedding(s, true); });
  declare("reduce/sum_squares", sumSquares);
  declare("reduce/add", add);
}

} // namespace

int main(int argc, char **argv) {
  registerAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv))
    return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
