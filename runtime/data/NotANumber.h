//===- NotANumber.h - NaN and infinities in arrays --------------*- C++ -*-===//
#pragma once

#include <cstdint>
#include <string>

namespace pipec {

/// Index of the first NaN among `count` numbers of a type, or -1; types that
/// have none have none.
int64_t firstNan(const std::string &dtype, const char *data, int64_t count);

/// Of the first that is infinite.
int64_t firstInfinity(const std::string &dtype, const char *data,
                      int64_t count);

} // namespace pipec
