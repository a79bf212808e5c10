//===- Trials.h - the fastest of several ways -------------------*- C++ -*-===//
#pragma once

#include "runtime/device/cuda/Driver.h"

#include <functional>
#include <vector>

namespace pipec::cuda {

/// Measures ways to compute the same result, on a stream that nothing else
/// waits for. Only those count that give the bits of the first, so that it does
/// not show in results which one was the fastest.
class Trials {
public:
  /// `bytes`: of a result.
  Trials(Stream stream, int64_t bytes);
  ~Trials();
  Trials(const Trials &) = delete;

  /// Queues way `which` with its result to `to`; a status, 0 for success.
  using Run = std::function<int(size_t which, char *to)>;
  /// The fastest of ways 0 to count - 1; 0 also where it cannot be measured:
  /// there is no memory for another result, or the first is not run.
  size_t fastest(size_t count, const Run &run);

private:
  void waitForStream() const;
  std::vector<char> sample() const;
  float milliseconds(size_t which, const Run &run) const;

  const Driver &cuda;
  const Stream stream;
  const int64_t bytes;
  Address result = 0;
  Event begin = nullptr, end = nullptr;
};

} // namespace pipec::cuda
