//===- MeasureKernels.cpp - times of the CPU kernels on this machine ------===//
#include "compiler/driver/MeasureKernels.h"

#include "runtime/kernels/cpu/Kernels.h"
#include "support/Nap.h"

#include <algorithm>
#include <barrier>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <thread>

extern "C" void omp_set_num_threads(int);

namespace pipec {
namespace {

using plan::OpKind;

struct Free {
  void operator()(float *p) const {
    ::operator delete[](p, std::align_val_t(64));
  }
};
using Array = std::unique_ptr<float[], Free>;

/// Small numbers, all different from 0: no path is taken for its data.
Array makeArray(int64_t n) {
  Array a(new (std::align_val_t(64)) float[static_cast<size_t>(n) + 16]);
  uint32_t state = 12345;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    a[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return a;
}

/// Work that is timed: each worker makes its own operands, then repeats it.
struct Job {
  OpKind kind;
  double flops, bytes;
  plan::KernelWork work;
  std::function<std::function<void()>()> make;
};

/// Operands of a job, several times over, so that a repetition finds them where
/// a pipeline does: in the cache that cores share, not in a core's own.
class Operands {
public:
  explicit Operands(const std::vector<int64_t> &sizes) : sizes(sizes) {
    int64_t elements = 1;
    for (int64_t size : sizes)
      elements += size;
    constexpr int64_t kFootprint = 3 << 18; // 3 MiB
    const int64_t copies = std::clamp<int64_t>(kFootprint / elements, 1, 256);
    for (int64_t i = 0; i < copies; ++i)
      for (int64_t size : sizes)
        arrays.push_back(makeArray(size));
  }
  /// The next copy's arrays.
  const Array *next() {
    const Array *first = &arrays[at];
    at = (at + sizes.size()) % arrays.size();
    return first;
  }

private:
  std::vector<int64_t> sizes;
  std::vector<Array> arrays;
  size_t at = 0;
};

/// Of one thread, the time it has a core: what else runs on the machine does
/// not count. Of several, the clock's.
double seconds(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
}

/// The middle of at least five timings, of which each has about a tenth of
/// `budget` seconds.
double timeOne(const std::function<void()> &work, int threads, double budget) {
  work();
  double begin = seconds(threads);
  work();
  const double once = std::max(1e-7, seconds(threads) - begin);
  const int repeats =
      std::clamp(static_cast<int>(budget / 10 / once), 1, 10000);
  std::vector<double> times;
  const double end = seconds(threads) + budget;
  do {
    begin = seconds(threads);
    for (int i = 0; i < repeats; ++i)
      work();
    times.push_back((seconds(threads) - begin) / repeats);
  } while (seconds(threads) < end || times.size() < 5);
  std::nth_element(times.begin(), times.begin() + times.size() / 2,
                   times.end());
  return times[times.size() / 2];
}

/// Seconds of a repetition, the mean over the workers.
double measure(const Job &job, int workers, int threads, double budget) {
  std::vector<double> times(static_cast<size_t>(workers));
  std::barrier start(workers);
  auto work = [&](int worker) {
    omp_set_num_threads(threads);
    auto body = job.make();
    start.arrive_and_wait();
    times[static_cast<size_t>(worker)] = timeOne(body, threads, budget);
  };
  std::vector<std::thread> others;
  for (int w = 1; w < workers; ++w)
    others.emplace_back(work, w);
  work(0);
  for (std::thread &other : others)
    other.join();
  double mean = 0;
  for (double t : times)
    mean += t / workers;
  return mean;
}

//===----------------------------------------------------------------------===//
// What is timed
//===----------------------------------------------------------------------===//

Job product(const plan::ProductShape &s) {
  const int64_t a = s.batch * s.m * s.k, b = s.batch * s.k * s.n,
                c = s.batch * s.m * s.n;
  return {OpKind::MatMul, 2.0 * static_cast<double>(s.batch * s.m * s.n * s.k),
          4.0 * static_cast<double>(a + b + c), plan::productWork(s), [=] {
            PipecMatmul d = {};
            d.transpose_a = s.transposeA, d.transpose_b = s.transposeB;
            d.m = s.m, d.n = s.n, d.k = s.k;
            d.lda = s.transposeA ? s.m : s.k, d.ldb = s.transposeB ? s.k : s.n;
            d.ldc = s.n;
            d.batch_rank = 1;
            d.batch[0] = s.batch;
            d.stride_a[0] = s.m * s.k, d.stride_b[0] = s.k * s.n;
            d.stride_c[0] = s.m * s.n;
            auto arrays = std::make_shared<Operands>(std::vector{a, b, c});
            return [=] {
              const Array *next = arrays->next();
              pipec_matmul(&d, next[0].get(), next[1].get(), next[2].get());
            };
          }};
}

/// A square window over square pictures.
struct ConvolutionCase {
  int64_t images, channels, outputs, size, kernel, stride = 1;
};

PipecConv descriptorOf(const ConvolutionCase &s) {
  PipecConv d = {};
  d.spatial_rank = 2, d.groups = 1;
  d.n = s.images, d.c = s.channels, d.o = s.outputs;
  for (int i = 0; i < 2; ++i) {
    d.in[i] = s.size, d.kernel[i] = s.kernel;
    d.stride[i] = s.stride, d.dilation[i] = 1;
    d.pad_lo[i] = d.pad_hi[i] = s.kernel / 2;
    d.out[i] = (s.size + 2 * (s.kernel / 2) - s.kernel) / s.stride + 1;
  }
  return d;
}

/// Forward or one of the gradients.
Job convolution(int which, const ConvolutionCase &s) {
  const PipecConv d = descriptorOf(s);
  const int64_t in = d.n * d.c * d.in[0] * d.in[1],
                out = d.n * d.o * d.out[0] * d.out[1],
                weights = d.o * d.c * s.kernel * s.kernel;
  const int64_t scratch = pipec_conv_scratch_bytes(&d, which) / 4;
  return {OpKind::Convolution,
          2.0 * static_cast<double>(out) *
              static_cast<double>(d.c * s.kernel * s.kernel),
          4.0 * static_cast<double>(in + out + weights),
          convolutionWork(d, which), [=] {
            auto shape =
                std::shared_ptr<PipecConv>(new PipecConv(d), [](PipecConv *p) {
                  pipec_release_conv(p);
                  delete p;
                });
            pipec_prepare_conv(shape.get(), which);
            auto arrays = std::make_shared<Operands>(
                std::vector{in, out, weights, scratch});
            return [=] {
              const Array *next = arrays->next();
              float *x = next[0].get(), *y = next[1].get(), *w = next[2].get(),
                    *t = next[3].get();
              if (which == PIPEC_CONV_FORWARD)
                pipec_conv_forward(shape.get(), x, w, y, t);
              else if (which == PIPEC_CONV_BACKWARD_INPUT)
                pipec_conv_backward_input(shape.get(), y, w, x, t);
              else
                pipec_conv_backward_weight(shape.get(), x, y, w, t);
            };
          }};
}

Job addition(int64_t n) {
  return {OpKind::Elementwise,
          static_cast<double>(n),
          12.0 * static_cast<double>(n),
          {},
          [=] {
            auto arrays = std::make_shared<Operands>(std::vector{n, n});
            return [=] {
              const Array *next = arrays->next();
              pipec_add(next[0].get(), next[1].get(), n);
            };
          }};
}

//===----------------------------------------------------------------------===//
// Many shapes
//===----------------------------------------------------------------------===//

/// The same choices on every machine.
class Choices {
public:
  int64_t of(std::initializer_list<int64_t> list) {
    return list.begin()[between(0, static_cast<int64_t>(list.size()) - 1)];
  }
  int64_t between(int64_t low, int64_t high) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return low + static_cast<int64_t>((state >> 33) %
                                      static_cast<uint64_t>(high - low + 1));
  }

private:
  uint64_t state = 1;
};

/// Layers of all widths, attention's many small matrices, and odd sizes.
std::vector<Job> products(int count) {
  Choices choose;
  std::vector<Job> jobs;
  while (static_cast<int>(jobs.size()) < count) {
    plan::ProductShape s;
    switch (jobs.size() % 4) {
    case 0:
    case 1:
      s.m = choose.of({8, 16, 32, 64, 128, 192, 256, 384, 512, 1024, 2048});
      s.n = choose.of({10, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024});
      s.k = choose.of({16, 32, 64, 96, 128, 192, 256, 384, 512, 1024});
      break;
    case 2:
      s.batch = choose.of({4, 8, 16, 32, 64});
      s.m = choose.of({16, 32, 48, 64, 96, 128});
      s.n = choose.of({8, 16, 32, 48, 64, 128});
      s.k = choose.of({8, 16, 32, 48, 64, 128});
      break;
    default:
      s.batch = choose.of({1, 1, 4});
      s.m = choose.between(9, 300);
      s.n = choose.between(9, 300);
      s.k = choose.between(9, 300);
    }
    s.transposeA = choose.between(0, 2) == 0;
    s.transposeB = choose.between(0, 2) == 0;
    if (s.batch * s.m * s.n * s.k <= int64_t(1) << 27)
      jobs.push_back(product(s));
  }
  return jobs;
}

/// Convolutions that `path` takes, each with its gradients.
std::vector<Job> convolutions(int count, int path) {
  Choices choose;
  std::vector<Job> jobs;
  while (static_cast<int>(jobs.size()) < 3 * count) {
    ConvolutionCase s;
    s.images = choose.of({1, 2, 4, 8, 16});
    s.channels = choose.of({1, 3, 8, 16, 32, 64, 64, 128});
    s.outputs = choose.of({4, 8, 16, 32, 64, 64, 128});
    s.size = choose.of({4, 7, 8, 14, 16, 28, 32, 56});
    s.kernel = choose.of({1, 3, 3, 3, 5});
    s.stride = choose.of({1, 1, 1, 2});
    const PipecConv d = descriptorOf(s);
    const int64_t work = s.images * s.channels * s.outputs * d.out[0] *
                         d.out[0] * s.kernel * s.kernel;
    if (work > int64_t(1) << 26 || d.out[0] < 2)
      continue;
    for (int which = 0; which < 3; ++which)
      if (pipec_conv_path(&d, which) == path)
        jobs.push_back(convolution(which, s));
  }
  return jobs;
}

} // namespace

plan::KernelWork convolutionWork(const PipecConv &d, int which) {
  plan::ConvolutionShape s;
  s.images = d.n, s.channels = d.c, s.outputs = d.o;
  s.groups = std::max(1, d.groups);
  s.in = s.out = 1;
  for (int i = 0; i < d.spatial_rank; ++i)
    s.in *= d.in[i], s.out *= d.out[i], s.taps *= d.kernel[i];
  const char *path = "direct";
  switch (pipec_conv_path(&d, which)) {
  case PIPEC_CONV_PRODUCT:
    path = "product";
    break;
  case PIPEC_CONV_ROWS:
    path = "rows";
    break;
  case PIPEC_CONV_WINOGRAD:
    path = "winograd";
    break;
  }
  return plan::convolutionWork(s, static_cast<plan::ConvolutionPass>(which),
                               path);
}

double measureNap() {
  std::vector<double> naps;
  for (int i = 0; i < 401; ++i) {
    const double begin = seconds(2);
    nap(kLookNanoseconds);
    naps.push_back(seconds(2) - begin);
  }
  std::nth_element(naps.begin(), naps.begin() + 200, naps.end());
  return naps[200];
}

std::vector<plan::CalibrationSample> measureKernels(int workers, int threads) {
  std::vector<Job> jobs;
  for (int64_t n : {1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 23})
    jobs.push_back(addition(n));
  for (int64_t n : {32, 64, 128, 256, 512, 1024})
    jobs.push_back(product({1, n, n, n}));
  jobs.push_back(product({16, 64, 64, 32}));
  for (int which = 0; which < 3; ++which) {
    jobs.push_back(convolution(which, {4, 8, 16, 16, 3}));
    jobs.push_back(convolution(which, {4, 64, 64, 28, 3}));
    jobs.push_back(convolution(which, {4, 64, 256, 28, 1}));
  }
  std::vector<plan::CalibrationSample> samples;
  for (const Job &job : jobs)
    samples.push_back({job.kind, plan::DType::F32, job.flops, job.bytes,
                       measure(job, workers, threads, 0.03)});
  return samples;
}

std::vector<plan::KernelSample> measureRoutines(int workers, int threads,
                                                int share) {
  std::vector<Job> jobs = products(180 / share);
  for (int path : {PIPEC_CONV_PRODUCT, PIPEC_CONV_ROWS, PIPEC_CONV_WINOGRAD})
    for (Job &job :
         convolutions((path == PIPEC_CONV_PRODUCT ? 60 : 16) / share, path))
      jobs.push_back(std::move(job));
  std::vector<plan::KernelSample> samples;
  for (const Job &job : jobs)
    samples.push_back({job.work, measure(job, workers, threads, 0.01)});
  return samples;
}

} // namespace pipec
