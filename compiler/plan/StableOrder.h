//===- StableOrder.h - sort with ties in their old order --------*- C++ -*-===//
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

namespace pipec::plan {

/// Sorts ascending by `key`; equal keys keep their order, so results never
/// depend on the library's algorithm.
template <typename T, typename Key>
void sortBy(std::vector<T> &items, Key key) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    auto ka = key(items[a]), kb = key(items[b]);
    return ka < kb || (ka == kb && a < b);
  });
  std::vector<T> sorted;
  sorted.reserve(items.size());
  for (size_t i : order)
    sorted.push_back(std::move(items[i]));
  items = std::move(sorted);
}

} // namespace pipec::plan
