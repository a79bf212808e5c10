//===- TrimmedMean.h - the mean of most of some numbers ---------*- C++ -*-===//
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace pipec {

/// The mean without the least and the greatest twentieth, which are of other
/// things: what a step takes is the mean of what its tasks take, also where
/// cores are slower now and then, and their median knows nothing of that.
/// `numbers` is not empty.
inline double trimmedMean(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const auto cut = static_cast<std::ptrdiff_t>(numbers.size() / 20);
  const auto kept = numbers.end() - numbers.begin() - 2 * cut;
  return std::accumulate(numbers.begin() + cut, numbers.end() - cut, 0.0) /
         static_cast<double>(kept);
}

} // namespace pipec
