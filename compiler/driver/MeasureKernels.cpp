//===- MeasureKernels.cpp - times of the CPU kernels on this machine ------===//
#include "compiler/driver/MeasureKernels.h"

#include "compiler/driver/MeasuredMemory.h"
#include "compiler/driver/Planning.h"
#include "compiler/driver/RoutineWork.h"

#include "runtime/kernels/cpu/Kernels.h"
#include "support/Clock.h"
#include "support/Cores.h"
#include "support/Doorbell.h"
#include "support/Median.h"
#include "support/Phase.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <unistd.h>

namespace pipec {
namespace {

using plan::OpKind;

/// Work that is timed: each worker makes its own operands, then repeats it.
struct Job {
  OpKind kind;
  double flops, bytes;
  plan::KernelWork work;
  std::function<std::function<void()>(int64_t footprint)> make;
};

/// Of one thread, the time it has a core: what else runs on the machine does
/// not count. Of several, the clock's.
double seconds(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
}

/// The middle of at least two timings, of which each has about a tenth of
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
  } while (seconds(threads) < end || times.size() < 2);
  return median(std::move(times));
}

double measure(const Job &job, const Workers &workers, double budget) {
  return measureCalls([&] { return job.make(workers.footprint); }, workers,
                      budget);
}

//===----------------------------------------------------------------------===//
// What is timed
//===----------------------------------------------------------------------===//

Job product(const plan::ProductShape &s) {
  const int64_t a = s.batch * s.m * s.k, b = s.batch * s.k * s.n,
                c = s.batch * s.m * s.n;
  return {OpKind::MatMul, 2.0 * static_cast<double>(s.batch * s.m * s.n * s.k),
          (s.bf16 ? 2.0 : 4.0) * static_cast<double>(a + b) +
              4.0 * static_cast<double>(c),
          plan::productWork(s, productTile()), [=](int64_t footprint) {
            PipecMatmul d = {};
            d.dtype = s.bf16 ? PIPEC_BF16 : PIPEC_F32;
            d.wide = s.bf16;
            d.transpose_a = s.transposeA, d.transpose_b = s.transposeB;
            d.m = s.m, d.n = s.n, d.k = s.k;
            d.lda = s.transposeA ? s.m : s.k, d.ldb = s.transposeB ? s.k : s.n;
            d.ldc = s.n;
            d.batch_rank = 1;
            d.batch[0] = s.batch;
            d.stride_a[0] = s.m * s.k, d.stride_b[0] = s.k * s.n;
            d.stride_c[0] = s.m * s.n;
            auto arrays =
                std::make_shared<Operands>(std::vector{a, b, c}, footprint);
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
          routineWork(d, which, productTile()), [=](int64_t footprint) {
            auto shape =
                std::shared_ptr<PipecConv>(new PipecConv(d), [](PipecConv *p) {
                  pipec_release_conv(p);
                  delete p;
                });
            pipec_prepare_conv(shape.get(), which);
            auto arrays = std::make_shared<Operands>(
                std::vector{in, out, weights, scratch}, footprint);
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

Job copyJob(const PipecCopy &d, int64_t from, int64_t to) {
  return {OpKind::Copy, 0, 0, routineWork(d), [=](int64_t footprint) {
            auto arrays =
                std::make_shared<Operands>(std::vector{from, to}, footprint);
            return [=] {
              const Array *next = arrays->next();
              pipec_copy(&d, next[0].get(), next[1].get());
            };
          }};
}

/// Rows of a table by index, or added to it.
Job gatherJob(int64_t table, int64_t inner, int64_t ids, bool adds) {
  PipecGather d = {};
  d.dtype = PIPEC_F32, d.id_type = PIPEC_I64;
  d.outer = 1, d.axis = table, d.inner = inner, d.ids = ids;
  const int64_t cleared = adds ? 4 * table * inner : 0;
  return {OpKind::Copy, 0, 0, routineWork(d, adds, cleared),
          [=](int64_t footprint) {
            auto numbers = std::make_shared<std::vector<int64_t>>();
            Choices choose;
            for (int64_t i = 0; i < ids; ++i)
              numbers->push_back(choose.between(0, table - 1));
            auto arrays = std::make_shared<Operands>(
                std::vector{table * inner, ids * inner}, footprint);
            return [=] {
              const Array *next = arrays->next();
              if (adds) {
                std::memset(next[0].get(), 0, static_cast<size_t>(cleared));
                pipec_scatter_add(&d, numbers->data(), next[1].get(),
                                  next[0].get());
              } else {
                pipec_gather(&d, next[0].get(), numbers->data(), next[1].get());
              }
            };
          }};
}

Job poolJob(const char *name, int64_t images, int64_t channels, int64_t size,
            int64_t window, int64_t stride) {
  PipecPool d = {};
  d.spatial_rank = 2, d.n = images, d.c = channels;
  for (int i = 0; i < 2; ++i) {
    d.in[i] = size, d.kernel[i] = window, d.stride[i] = stride;
    d.dilation[i] = 1;
    d.pad_lo[i] = d.pad_hi[i] = window == 3; // as stems of networks have it
    d.out[i] = (size + 2 * d.pad_lo[i] - window) / stride + 1;
  }
  const int64_t in = images * channels * size * size,
                out = images * channels * d.out[0] * d.out[1];
  const std::string kind = name;
  return {OpKind::Copy, 0, 0, routineWork(d, kind, productTile()),
          [=](int64_t footprint) {
            // Branches that depend on the data are not to be learnt by heart.
            auto arrays = std::make_shared<Operands>(
                std::vector{in, out, out},
                kind == "max-pool" ? std::max<int64_t>(footprint, 3 << 20)
                                   : footprint);
            auto index = std::make_shared<std::vector<int32_t>>(out);
            for (int64_t i = 0; i < out; ++i) // of each window the first
              (*index)[i] = static_cast<int32_t>(i % (d.out[0] * d.out[1]) /
                                                     d.out[1] * stride * size +
                                                 i % d.out[1] * stride);
            return [=] {
              const Array *next = arrays->next();
              float *x = next[0].get(), *y = next[1].get();
              if (kind == "max-pool")
                pipec_max_pool(&d, x, y,
                               reinterpret_cast<int32_t *>(next[2].get()));
              else if (kind == "max-pool-grad")
                pipec_max_pool_grad(&d, y, index->data(), x);
              else if (kind == "avg-pool")
                pipec_avg_pool(&d, x, y);
              else
                pipec_avg_pool_grad(&d, y, x);
            };
          }};
}

Job addition(int64_t n) {
  return {OpKind::Elementwise,
          static_cast<double>(n),
          12.0 * static_cast<double>(n),
          {},
          [=](int64_t footprint) {
            auto arrays =
                std::make_shared<Operands>(std::vector{n, n}, footprint);
            return [=] {
              const Array *next = arrays->next();
              pipec_add(next[0].get(), next[1].get(), n);
            };
          }};
}

//===----------------------------------------------------------------------===//
// Many shapes
//===----------------------------------------------------------------------===//

/// Layers of all widths, attention's many small matrices, and odd sizes.
std::vector<Job> products(int count, bool bf16) {
  Choices choose;
  std::vector<Job> jobs;
  while (static_cast<int>(jobs.size()) < count) {
    plan::ProductShape s;
    s.bf16 = bf16;
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
    if (s.batch * s.m * s.n * s.k <= int64_t(1) << 25)
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
    s.size = choose.of({2, 4, 4, 7, 8, 14, 16, 28, 32, 56});
    s.kernel = choose.of({1, 3, 3, 3, 5, 7});
    s.stride = choose.of({1, 1, 1, 2});
    const PipecConv d = descriptorOf(s);
    const int64_t work = s.images * s.channels * s.outputs * d.out[0] *
                         d.out[0] * s.kernel * s.kernel;
    if (work > int64_t(1) << 25 || d.out[0] < 2)
      continue;
    for (int which = 0; which < 3; ++which)
      if (pipec_conv_path(&d, which) == path)
        jobs.push_back(convolution(which, s));
  }
  return jobs;
}

/// Heads out of a projection, matrices turned, parts of a tensor.
std::vector<Job> copies(int count) {
  Choices choose;
  std::vector<Job> jobs;
  for (int i = 0; i < count; ++i) {
    const int64_t a = choose.of({1, 4, 8, 16, 32}), b = choose.of({16, 32, 64}),
                  c = choose.of({2, 4, 8}), d = choose.of({8, 16, 32, 64});
    PipecCopy copy = {};
    copy.element_size = 4, copy.rank = 4;
    const int64_t size[] = {a, c, b, d}, dense[] = {c * b * d, b * d, d, 1},
                  heads[] = {b * c * d, d, c * d, 1},
                  turned[] = {b * c * d, d * b, 1, b},
                  apart[] = {2 * c * b * d, 2 * b * d, 2 * d, 2};
    const int64_t *from = i % 4 == 0   ? heads
                          : i % 4 == 1 ? turned
                          : i % 4 == 2 ? apart
                                       : dense;
    for (int k = 0; k < 4; ++k) {
      copy.size[k] = size[k], copy.src_stride[k] = from[k];
      copy.dst_stride[k] = i % 4 == 3 ? heads[k] : dense[k];
    }
    jobs.push_back(copyJob(copy, 2 * a * b * c * d, a * b * c * d));
  }
  return jobs;
}

std::vector<Job> tables(int count) {
  Choices choose;
  std::vector<Job> jobs;
  for (int i = 0; i < count; ++i)
    jobs.push_back(gatherJob(choose.of({16, 64, 128, 512, 2048}),
                             choose.of({8, 16, 32, 64, 128, 256}),
                             choose.of({8, 32, 64, 128, 256, 512}), i % 2));
  return jobs;
}

std::vector<Job> pools(int count) {
  Choices choose;
  std::vector<Job> jobs;
  for (int i = 0; i < count; ++i)
    for (const char *name :
         {"max-pool", "max-pool-grad", "avg-pool", "avg-pool-grad"}) {
      const int64_t size = choose.of({4, 7, 8, 12, 16, 24, 28, 32, 40, 56}),
                    window =
                        choose.of({2, 2, 3, 3, std::min<int64_t>(size, 7)});
      jobs.push_back(poolJob(name, choose.of({1, 2, 4, 8}),
                             choose.of({1, 4, 8, 16, 32, 64}), size, window,
                             std::min(window, choose.of({1, 2, 2, 3}))));
    }
  return jobs;
}

} // namespace

int64_t ownCacheBytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? bytes : int64_t(1) << 20;
}

double measureCalls(const std::function<std::function<void()>()> &make,
                    const Workers &all, double budget) {
  const int workers = all.count, threads = all.threads;
  std::vector<double> times(static_cast<size_t>(workers));
  std::barrier start(workers);
  auto work = [&](int worker) {
    pipec_set_threads(threads);
    pipec_share_from(1);
    auto body = make();
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

double measureRing() {
  constexpr int kRings = 201;
  std::array<Bell, 2> bells;
  std::atomic<double> rung{0};
  std::atomic<bool> resting{false};
  std::vector<double> times;
  std::thread sleeper([&] {
    const Doorbell door(1, {&bells[0], &bells[1]}, true);
    for (uint32_t heard = 0; heard < kRings; ++heard) {
      resting = true;
      while (door.rings() == heard)
        door.rest(heard, 1'000'000'000);
      times.push_back(now() - rung);
    }
  });
  const Doorbell door(0, {&bells[0], &bells[1]}, true);
  for (int i = 0; i < kRings; ++i) {
    while (!resting.exchange(false))
      ;
    // Long enough for its core to be idle.
    for (const double begin = now(); now() < begin + 3e-4;)
      ;
    rung = now();
    door.ring(1);
  }
  sleeper.join();
  return median(std::move(times));
}

double measureTurn() {
  // Before a task and after it (runtime/exec/TaskRunner.cpp).
  double sum = 0;
  return timeOne([&] { sum += now() + coreSeconds() + now() + coreSeconds(); },
                 1, 0.01);
}

std::vector<plan::CalibrationSample> measureKernels(const Workers &workers) {
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
  Phase timing("kernel", std::ssize(jobs));
  for (const Job &job : jobs) {
    timing.next();
    samples.push_back({job.kind, plan::DType::F32, job.flops, job.bytes,
                       measure(job, workers, 0.03)});
  }
  for (int64_t n : {64, 128, 256, 512}) {
    const Job job = product({1, n, n, n, false, false, true});
    samples.push_back({job.kind, plan::DType::BF16, job.flops, job.bytes,
                       measure(job, workers, 0.03)});
  }
  return samples;
}

std::vector<plan::KernelSample> measureRoutines(const Workers &workers,
                                                int share) {
  std::vector<Job> jobs = products(120 / share, false);
  for (Job &job : products(60 / share, true))
    jobs.push_back(std::move(job));
  for (int path : {PIPEC_CONV_PRODUCT, PIPEC_CONV_ROWS, PIPEC_CONV_WINOGRAD})
    for (Job &job :
         convolutions((path == PIPEC_CONV_PRODUCT ? 60 : 32) / share, path))
      jobs.push_back(std::move(job));
  for (auto *more : {&copies, &tables, &pools})
    for (Job &job : more(32 / share))
      jobs.push_back(std::move(job));
  std::vector<plan::KernelSample> samples;
  Phase timing("routine", std::ssize(jobs));
  for (const Job &job : jobs) {
    timing.next();
    samples.push_back({job.work, measure(job, workers, kCallBudget)});
  }
  return samples;
}

} // namespace pipec
