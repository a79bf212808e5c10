//===- Supersets.h - which cuts lie above which -----------------*- C++ -*-===//
#pragma once

#include "compiler/plan/published/Dag.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace pipec::published {

/// For each of n sets the later ones that contain it, a bit a pair: half of n²
/// bits. Lists of them took up to 32 times as much memory.
class Supersets {
public:
  Supersets() = default;
  explicit Supersets(size_t n) : n(n) {
    for (size_t k = 0; k < n; ++k) {
      begins.push_back(bits.size());
      bits.resize(bits.size() + words() - k / 64);
    }
  }

  /// Those above k are the ones of these bits behind it, which begin with those
  /// of k's word.
  void assign(size_t k, const uint64_t *from) {
    uint64_t *to = bits.data() + begins[k];
    std::copy(from, from + (words() - k / 64), to);
    to[0] &= k % 64 == 63 ? 0 : ~uint64_t(0) << (k % 64 + 1);
    if (n % 64 != 0)
      to[words() - 1 - k / 64] &= ~uint64_t(0) >> (64 - n % 64);
  }
  void add(size_t k, size_t j) {
    bits[begins[k] + j / 64 - k / 64] |= uint64_t(1) << (j % 64);
  }
  bool has(size_t k, size_t j) const {
    return j > k && (word(k, j / 64) >> (j % 64) & 1);
  }

  /// Ascending.
  class Iterator {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = uint32_t;
    using difference_type = std::ptrdiff_t;
    using pointer = const uint32_t *;
    using reference = uint32_t;
    Iterator(const uint64_t *word, const uint64_t *end, uint32_t base)
        : at(word), last(end), base(base), rest(word == end ? 0 : *word) {
      skip();
    }
    uint32_t operator*() const {
      return base + static_cast<uint32_t>(std::countr_zero(rest));
    }
    Iterator &operator++() {
      rest &= rest - 1;
      skip();
      return *this;
    }
    bool operator!=(const Iterator &other) const {
      return at != other.at || rest != other.rest;
    }

  private:
    void skip() {
      while (rest == 0 && at != last)
        if (++at != last)
          rest = *at, base += 64;
    }
    const uint64_t *at, *last;
    uint32_t base;
    uint64_t rest;
  };
  struct Range {
    Iterator from, to;
    Iterator begin() const { return from; }
    Iterator end() const { return to; }
  };
  Range operator[](size_t k) const {
    const uint64_t *from = bits.data() + begins[k];
    const uint64_t *to = from + (words() - k / 64);
    const auto base = static_cast<uint32_t>(k / 64 * 64);
    return {{from, to, base}, {to, to, base}};
  }

  /// The last one above k that is at most j; k where there is none.
  size_t lastUpTo(size_t k, size_t j) const {
    if (j <= k)
      return k;
    uint64_t rest =
        word(k, j / 64) & (~uint64_t(0) >> (63 - j % 64)); // up to bit j
    for (size_t w = j / 64;; rest = word(k, --w)) {
      if (rest != 0)
        return w * 64 + 63 - static_cast<size_t>(std::countl_zero(rest));
      if (w == k / 64)
        return k;
    }
  }

private:
  size_t words() const { return (n + 63) / 64; }
  uint64_t word(size_t k, size_t w) const {
    return bits[begins[k] + w - k / 64];
  }
  size_t n = 0;
  std::vector<size_t> begins;
  std::vector<uint64_t> bits;
};

/// Of closed sets of the graph, each before those that contain it.
Supersets supersetsOf(const Dag &dag, const BitRows &sets);

} // namespace pipec::published
