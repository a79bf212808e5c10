//===- NotANumber.cpp - NaN in arrays -------------------------------------===//
#include "runtime/data/NotANumber.h"

#include <cstring>

namespace pipec {
namespace {

/// Of numbers with so many bits of fraction. By the bits, which is the same for
/// all widths: the exponent is full and the fraction is not 0.
template <typename Bits>
int64_t firstOf(const char *data, int64_t count, int fraction) {
  constexpr Bits sign = Bits(Bits(1) << (8 * sizeof(Bits) - 1));
  const Bits infinity = Bits(sign - Bits(Bits(1) << fraction));
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * static_cast<int64_t>(sizeof bits),
                sizeof bits);
    if (Bits(bits & Bits(~sign)) > infinity)
      return i;
  }
  return -1;
}

} // namespace

int64_t firstNan(const std::string &dtype, const char *data, int64_t count) {
  if (dtype == "float32")
    return firstOf<uint32_t>(data, count, 23);
  if (dtype == "float64")
    return firstOf<uint64_t>(data, count, 52);
  if (dtype == "float16")
    return firstOf<uint16_t>(data, count, 10);
  if (dtype == "bfloat16")
    return firstOf<uint16_t>(data, count, 7);
  return -1;
}

} // namespace pipec
