//===- NotANumber.cpp - NaN in arrays -------------------------------------===//
#include "runtime/data/NotANumber.h"

#include <cstring>

namespace pipec {
namespace {

/// The bits of a floating-point type, and those of its fraction.
struct Format {
  const char *dtype;
  int64_t bytes;
  int fraction;
};
constexpr Format kFormats[] = {{"float16", 2, 10},
                               {"bfloat16", 2, 7},
                               {"float32", 4, 23},
                               {"float64", 8, 52}};

/// By the bits, which is the same for all widths: the exponent is full and the
/// fraction is not 0.
bool isNan(const char *value, const Format &format) {
  uint64_t bits = 0;
  std::memcpy(&bits, value, static_cast<size_t>(format.bytes));
  const uint64_t sign = uint64_t(1) << (8 * format.bytes - 1);
  const uint64_t infinity = sign - (uint64_t(1) << format.fraction);
  return (bits & ~sign) > infinity;
}

} // namespace

int64_t firstNan(const std::string &dtype, const char *data, int64_t count) {
  for (const Format &format : kFormats)
    if (dtype == format.dtype)
      for (int64_t i = 0; i < count; ++i)
        if (isNan(data + i * format.bytes, format))
          return i;
  return -1;
}

} // namespace pipec
