//===- NotANumber.cpp - NaN and infinities in arrays ----------------------===//
#include "runtime/data/NotANumber.h"

#include <cstring>

namespace pipec {
namespace {

/// Of numbers with so many bits of fraction. By the bits, which is the same for
/// all widths: the exponent is full, and of NaN the fraction is not 0.
template <typename Bits>
int64_t firstOf(const char *data, int64_t count, int fraction, bool nan) {
  constexpr Bits sign = Bits(Bits(1) << (8 * sizeof(Bits) - 1));
  const Bits infinity = Bits(sign - Bits(Bits(1) << fraction));
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * static_cast<int64_t>(sizeof bits),
                sizeof bits);
    const Bits size = Bits(bits & Bits(~sign));
    if (nan ? size > infinity : size == infinity)
      return i;
  }
  return -1;
}

int64_t first(const std::string &dtype, const char *data, int64_t count,
              bool nan) {
  if (dtype == "float32")
    return firstOf<uint32_t>(data, count, 23, nan);
  if (dtype == "float64")
    return firstOf<uint64_t>(data, count, 52, nan);
  if (dtype == "float16")
    return firstOf<uint16_t>(data, count, 10, nan);
  if (dtype == "bfloat16")
    return firstOf<uint16_t>(data, count, 7, nan);
  return -1;
}

} // namespace

int64_t firstNan(const std::string &dtype, const char *data, int64_t count) {
  return first(dtype, data, count, true);
}

int64_t firstInfinity(const std::string &dtype, const char *data,
                      int64_t count) {
  return first(dtype, data, count, false);
}

} // namespace pipec
