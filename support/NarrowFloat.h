//===- NarrowFloat.h - float32 as numbers of 16 bits ------------*- C++ -*-===//
//
// To the nearest, of two the even one, as NumPy and PyTorch round. A NaN stays
// one.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <bit>
#include <cstdint>

namespace pipec {

/// The bits of the nearest float16.
inline uint16_t toHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) // NaN
    return sign | 0x7e00;
  if (magnitude >= 0x477ff000) // rounds to infinity
    return sign | 0x7c00;
  if (magnitude < 0x38800000) { // subnormal: adding 0.5 rounds at 2^-24
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return sign |
           static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded) - 0x3f000000);
  }
  const uint32_t odd = magnitude >> 13 & 1;
  return sign |
         static_cast<uint16_t>((magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

/// The bits of the nearest bfloat16.
inline uint16_t toBfloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// What the bits of a bfloat16 stand for.
inline float fromBfloat(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

} // namespace pipec
