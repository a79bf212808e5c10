//===- Element.h - what products read and add up in -------------*- C++ -*-===//
#pragma once

#include <cstdint>

namespace pipec::cpu {

/// Two neighbouring steps of k of a bf16 operand, the earlier one in the low
/// half: what a processor multiplies and adds at a time.
using Pair = uint32_t;

/// `Part`: what a matrix in memory consists of; `Sum`: of products.
template <typename T> struct ElementOf {
  using Part = T;
  using Sum = T;
};
template <> struct ElementOf<Pair> {
  using Part = uint16_t;
  using Sum = float;
};
template <typename T> using Part = typename ElementOf<T>::Part;
template <typename T> using Sum = typename ElementOf<T>::Sum;

/// Steps of k of the matrix in one of the kernels'.
template <typename T> constexpr int kParts = int(sizeof(T) / sizeof(Part<T>));

} // namespace pipec::cpu
