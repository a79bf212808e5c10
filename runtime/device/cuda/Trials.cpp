//===- Trials.cpp - the fastest of several ways ---------------------------===//
#include "runtime/device/cuda/Trials.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace pipec::cuda {

/// Of a result some pieces are compared: another order of sums, rounded to
/// bf16, shows in a few of a million numbers.
constexpr int64_t kPieces = 64, kPieceBytes = int64_t(256) << 10;
/// Runs of a measurement; the least of several counts, which the ways have in
/// turns.
constexpr int kRuns = 3, kRounds = 4;
/// An idle device's clock takes a while to rise: the first way is measured
/// until it gets no faster, so often at most.
constexpr int kMostWarming = 40;
constexpr float kSettled = 0.99F;
/// What is not faster by so much is not worth another way.
constexpr float kWorthIt = 0.98F;

Trials::Trials(Stream stream, std::function<void()> wait, char *result,
               int64_t bytes)
    : cuda(Driver::get()), stream(stream), wait(std::move(wait)),
      result(result), bytes(bytes) {
  cuda.check(cuda.createEvent(&begin, 0), "cuEventCreate");
  cuda.check(cuda.createEvent(&end, 0), "cuEventCreate");
}

Trials::~Trials() {
  cuda.destroyEvent(begin);
  cuda.destroyEvent(end);
}

std::vector<char> Trials::sample() const {
  const int64_t piece = std::min(kPieceBytes, bytes),
                count = std::min(kPieces, bytes / piece),
                step = count > 1 ? (bytes - piece) / (count - 1) : 0;
  std::vector<char> all(static_cast<size_t>(count * piece));
  for (int64_t i = 0; i < count; ++i)
    cuda.check(cuda.copyToHost(all.data() + i * piece,
                               addressOf(result + i * step),
                               static_cast<size_t>(piece), stream),
               "cuMemcpyDtoHAsync");
  wait();
  return all;
}

float Trials::milliseconds(size_t which, const Run &run) const {
  cuda.check(cuda.recordEvent(begin, stream, 0), "cuEventRecord");
  for (int i = 0; i < kRuns; ++i)
    run(which, result);
  cuda.check(cuda.recordEvent(end, stream, 0), "cuEventRecord");
  wait();
  float time = 0;
  cuda.check(cuda.elapsed(&time, begin, end), "cuEventElapsedTime");
  return time;
}

size_t Trials::fastest(size_t count, const Run &run) {
  auto tries = [&](size_t which) {
    cuda.check(
        cuda.fill(addressOf(result), 0xff, static_cast<size_t>(bytes), stream),
        "cuMemsetD8Async");
    return run(which, result) == 0;
  };
  if (count < 2 || !tries(0))
    return 0;
  const std::vector<char> want = sample();
  std::vector<size_t> alike = {0};
  for (size_t which = 1; which < count; ++which)
    if (tries(which) && sample() == want)
      alike.push_back(which);
  if (alike.size() == 1)
    return 0;
  float last = milliseconds(0, run);
  for (int i = 0; i < kMostWarming; ++i) {
    const float time = milliseconds(0, run);
    if (time > kSettled * last)
      break;
    last = time;
  }
  std::vector<float> least(alike.size(), std::numeric_limits<float>::max());
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < alike.size(); ++i)
      least[i] = std::min(least[i], milliseconds(alike[i], run));
  const auto best = std::min_element(least.begin(), least.end());
  return *best < kWorthIt * least[0]
             ? alike[static_cast<size_t>(best - least.begin())]
             : 0;
}

} // namespace pipec::cuda
