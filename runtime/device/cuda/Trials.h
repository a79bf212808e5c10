//===- Trials.h - the fastest of several ways -------------------*- C++ -*-===//
#pragma once

#include "runtime/device/cuda/Driver.h"

#include <functional>
#include <vector>

namespace pipec::cuda {

/// Measures ways to compute the same result, which is about to be computed
/// anyhow. Only those count that give the bits of the first, so that it does
/// not show in results which one was the fastest. Takes no memory of the
/// device: to give that back would wait for messages that others still wait to
/// send.
class Trials {
public:
  /// `result`: where it will be, what is there is lost. `wait` waits for the
  /// stream.
  Trials(Stream stream, std::function<void()> wait, char *result,
         int64_t bytes);
  ~Trials();
  Trials(const Trials &) = delete;

  /// Queues way `which` with its result to `to`; a status, 0 for success.
  using Run = std::function<int(size_t which, char *to)>;
  /// The fastest of ways 0 to count - 1; 0 also where the first is not run.
  size_t fastest(size_t count, const Run &run);

private:
  std::vector<char> sample() const;
  float milliseconds(size_t which, const Run &run) const;

  const Driver &cuda;
  const Stream stream;
  const std::function<void()> wait;
  char *const result;
  const int64_t bytes;
  Event begin = nullptr, end = nullptr;
};

} // namespace pipec::cuda
