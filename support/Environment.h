//===- Environment.h - what is wished for by variables ----------*- C++ -*-===//
#pragma once

#include <cstdlib>
#include <cstring>

namespace pipec {

/// Whether the environment has `variable` as `wanted`.
inline bool isWished(const char *variable, const char *wanted) {
  const char *wish = std::getenv(variable);
  return wish && std::strcmp(wish, wanted) == 0;
}

} // namespace pipec
