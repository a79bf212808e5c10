//===- Check.h - buffers and comparisons of the kernel tests ----*- C++ -*-===//
//
// Buffers are aligned, end in a guard zone and start out as NaN, so that a
// kernel that leaves an element unwritten or writes past the end is caught.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/Kernels.h"
#include "support/NarrowFloat.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <sys/mman.h>
#include <vector>

namespace pipec::test {

/// An aligned array with a guard zone.
template <typename T> class Buffer {
public:
  explicit Buffer(int64_t size)
      : count(size), bytes(size * sizeof(T) + kGuard),
        memory(new (std::align_val_t(64)) unsigned char[bytes]) {
    std::memset(memory.get(), 0xff, bytes); // NaN; -1
  }
  T *data() { return reinterpret_cast<T *>(memory.get()); }
  const T *data() const { return reinterpret_cast<const T *>(memory.get()); }
  int64_t size() const { return count; }
  T &operator[](int64_t i) { return data()[i]; }
  const T &operator[](int64_t i) const { return data()[i]; }

  bool guardIntact() const {
    for (size_t i = bytes - kGuard; i < bytes; ++i)
      if (memory.get()[i] != 0xff)
        return false;
    return true;
  }

private:
  static constexpr size_t kGuard = 256;
  struct Free {
    void operator()(unsigned char *p) const {
      ::operator delete[](p, std::align_val_t(64));
    }
  };
  int64_t count;
  size_t bytes;
  std::unique_ptr<unsigned char[], Free> memory;
};

/// A number of eight significant bits.
struct Bf16 {
  uint16_t bits;
  Bf16() = default;
  explicit Bf16(double value) : bits(toBfloat(float(value))) {}
  explicit operator double() const { return fromBfloat(bits); }
};

/// Reproducible numbers in [-1, 1).
class Random {
public:
  explicit Random(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t bits() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double unit() { return double(bits() >> 11) * 0x1p-52 - 1.0; }
  int64_t below(int64_t n) { return int64_t(bits() % uint64_t(n)); }
  template <typename T> void fill(Buffer<T> &b) {
    for (int64_t i = 0; i < b.size(); ++i)
      b[i] = T(unit());
  }

private:
  uint64_t state;
};

/// A sum in double with the sum of magnitudes, which bounds what rounding can
/// do to it.
struct Sum {
  double value = 0, magnitude = 0;
  void add(double term) {
    value += term;
    magnitude += std::fabs(term);
  }
};

/// Rounding units allowed, relative to the sum of magnitudes.
template <typename T> double tolerance() {
  return 8 * double(std::numeric_limits<T>::epsilon());
}

template <typename T>
void expectNear(const std::vector<Sum> &want, const T *got,
                const std::string &what) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(double(got[i]) - want[i].value);
    ASSERT_LE(error, tolerance<T>() * want[i].magnitude + 1e-30)
        << what << ": element " << i << " is " << got[i] << ", expected "
        << want[i].value;
  }
}

template <typename T>
void expectSameBits(const Buffer<T> &a, const Buffer<T> &b,
                    const std::string &what) {
  ASSERT_EQ(a.size(), b.size());
  for (int64_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(0, std::memcmp(&a[i], &b[i], sizeof(T)))
        << what << ": element " << i << " is " << a[i] << " or " << b[i];
}

/// Calls body(threads) for numbers of threads that must agree, the first one
/// twice.
template <typename Body> void forThreadCounts(const Body &body) {
  for (const int threads : {1, 2, 4, 3, 1}) {
    pipec_set_threads(threads);
    body(threads);
  }
  pipec_set_threads(2);
}

/// Memory between two pages that may not be read.
class Guarded {
public:
  explicit Guarded(int64_t count)
      : size((count * sizeof(float) + kPage - 1) / kPage * kPage),
        pages(static_cast<char *>(mmap(nullptr, size + 2 * kPage, PROT_NONE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    mprotect(pages + kPage, size, PROT_READ | PROT_WRITE);
  }
  ~Guarded() { munmap(pages, size + 2 * kPage); }
  Guarded(const Guarded &) = delete;
  Guarded &operator=(const Guarded &) = delete;

  /// So many numbers right after the first, or right before the second.
  float *first() { return reinterpret_cast<float *>(pages + kPage); }
  float *last(int64_t count) {
    return reinterpret_cast<float *>(pages + kPage + size) - count;
  }

private:
  static constexpr size_t kPage = 4096;
  size_t size;
  char *pages;
};

} // namespace pipec::test
