//===- MeasureKernels.cpp - times of the CPU kernels on this machine ------===//
#include "compiler/driver/MeasureKernels.h"

#include "runtime/kernels/cpu/Kernels.h"

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
  std::function<std::function<void()>()> make;
};

/// Of one thread, the time it has a core: what else runs on the machine does
/// not count. Of several, the clock's.
double seconds(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
}

/// The middle of several timings, each of at least two milliseconds.
double timeOne(const std::function<void()> &work, int threads) {
  work();
  double begin = seconds(threads);
  work();
  const double once = std::max(1e-7, seconds(threads) - begin);
  const int repeats = std::clamp(static_cast<int>(2e-3 / once), 1, 10000);
  std::vector<double> times;
  const double end = seconds(threads) + 0.03;
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

plan::CalibrationSample measure(const Job &job, int workers, int threads) {
  std::vector<double> times(static_cast<size_t>(workers));
  std::barrier start(workers);
  auto work = [&](int worker) {
    omp_set_num_threads(threads);
    auto body = job.make();
    start.arrive_and_wait();
    times[static_cast<size_t>(worker)] = timeOne(body, threads);
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
  return {job.kind, plan::DType::F32, job.flops, job.bytes, mean};
}

//===----------------------------------------------------------------------===//
// What is timed
//===----------------------------------------------------------------------===//

Job product(int64_t batch, int64_t m, int64_t n, int64_t k) {
  const double elements =
      static_cast<double>(batch) * static_cast<double>(m * k + k * n + m * n);
  return {OpKind::MatMul, 2.0 * static_cast<double>(batch * m * n * k),
          4 * elements, [=] {
            PipecMatmul d = {};
            d.m = m, d.n = n, d.k = k;
            d.lda = k, d.ldb = n, d.ldc = n;
            d.batch_rank = 1;
            d.batch[0] = batch;
            d.stride_a[0] = m * k, d.stride_b[0] = k * n;
            d.stride_c[0] = m * n;
            auto a = std::make_shared<Array>(makeArray(batch * m * k));
            auto b = std::make_shared<Array>(makeArray(batch * k * n));
            auto c = std::make_shared<Array>(makeArray(batch * m * n));
            return [=] { pipec_matmul(&d, a->get(), b->get(), c->get()); };
          }};
}

/// A square convolution of `images` pictures, forward or one of its gradients.
Job convolution(int which, int64_t images, int64_t c, int64_t o, int64_t size,
                int64_t kernel) {
  const double pixels = static_cast<double>(images * size * size);
  const auto taps = static_cast<double>(c * kernel * kernel);
  const double elements =
      pixels * static_cast<double>(c + o) + taps * static_cast<double>(o);
  return {
      OpKind::Convolution, 2 * pixels * static_cast<double>(o) * taps,
      4 * elements, [=] {
        PipecConv d = {};
        d.spatial_rank = 2, d.groups = 1;
        d.n = images, d.c = c, d.o = o;
        for (int i = 0; i < 2; ++i) {
          d.in[i] = d.out[i] = size, d.kernel[i] = kernel;
          d.stride[i] = d.dilation[i] = 1;
          d.pad_lo[i] = d.pad_hi[i] = kernel / 2;
        }
        pipec_prepare_conv(&d, which);
        auto shape =
            std::shared_ptr<PipecConv>(new PipecConv(d), [](PipecConv *p) {
              pipec_release_conv(p);
              delete p;
            });
        auto x = std::make_shared<Array>(makeArray(images * c * size * size));
        auto y = std::make_shared<Array>(makeArray(images * o * size * size));
        auto w = std::make_shared<Array>(makeArray(o * c * kernel * kernel));
        auto scratch = std::make_shared<Array>(
            makeArray(pipec_conv_scratch_bytes(&d, which) / 4));
        return [=] {
          float *t = scratch->get();
          if (which == PIPEC_CONV_FORWARD)
            pipec_conv_forward(shape.get(), x->get(), w->get(), y->get(), t);
          else if (which == PIPEC_CONV_BACKWARD_INPUT)
            pipec_conv_backward_input(shape.get(), y->get(), w->get(), x->get(),
                                      t);
          else
            pipec_conv_backward_weight(shape.get(), x->get(), y->get(),
                                       w->get(), t);
        };
      }};
}

Job addition(int64_t n) {
  return {OpKind::Elementwise, static_cast<double>(n),
          12.0 * static_cast<double>(n), [=] {
            auto x = std::make_shared<Array>(makeArray(n));
            auto y = std::make_shared<Array>(makeArray(n));
            return [=] { pipec_add(x->get(), y->get(), n); };
          }};
}

} // namespace

std::vector<plan::CalibrationSample> measureKernels(int workers, int threads) {
  std::vector<Job> jobs;
  for (int64_t n : {1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 23})
    jobs.push_back(addition(n));
  for (int64_t n : {32, 64, 128, 256, 512, 1024})
    jobs.push_back(product(1, n, n, n));
  jobs.push_back(product(16, 64, 64, 32));
  for (int which = 0; which < 3; ++which) {
    jobs.push_back(convolution(which, 4, 8, 16, 16, 3));
    jobs.push_back(convolution(which, 4, 64, 64, 28, 3));
    jobs.push_back(convolution(which, 4, 64, 256, 28, 1));
  }
  std::vector<plan::CalibrationSample> samples;
  for (const Job &job : jobs)
    samples.push_back(measure(job, workers, threads));
  return samples;
}

} // namespace pipec
