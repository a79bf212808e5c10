//===- Median.h - the middle of some numbers --------------------*- C++ -*-===//
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace pipec {

/// The upper one of two in the middle. `numbers` is not empty.
inline double median(std::vector<double> numbers) {
  const auto middle =
      numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

} // namespace pipec
