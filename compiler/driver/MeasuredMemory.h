//===- MeasuredMemory.h - operands of what is timed -------------*- C++ -*-===//
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <vector>

namespace pipec {

struct Free {
  void operator()(float *p) const {
    ::operator delete[](p, std::align_val_t(64));
  }
};
using Array = std::unique_ptr<float[], Free>;

/// Small numbers, all different from 0: no path is taken for its data. Other
/// ones for every `seed`, so that no branch can be foreseen.
inline Array makeArray(int64_t n, uint32_t seed) {
  Array a(new (std::align_val_t(64)) float[static_cast<size_t>(n) + 16]);
  uint32_t state = 12345 + 2654435761u * seed;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    a[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return a;
}

/// Operands of a job, several times over, so that a repetition finds them where
/// a program does that comes back to them after `footprint` bytes.
class Operands {
public:
  Operands(const std::vector<int64_t> &sizes, int64_t footprint)
      : sizes(sizes) {
    int64_t elements = 1;
    for (int64_t size : sizes)
      elements += size;
    const int64_t copies =
        std::clamp<int64_t>(footprint / 4 / elements, 1, 256);
    for (int64_t i = 0; i < copies; ++i)
      for (int64_t size : sizes)
        arrays.push_back(makeArray(size, static_cast<uint32_t>(arrays.size())));
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

} // namespace pipec
