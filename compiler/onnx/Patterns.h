//===- Patterns.h - names of weights that the user gives --------*- C++ -*-===//
#pragma once

#include "support/Diagnostics.h"

#include "llvm/Support/Regex.h"

#include <string>
#include <vector>

namespace pipec::onnx {

/// The regular expressions of one option, which are to match something.
class Patterns {
public:
  /// Reports texts that are no regular expressions; they match nothing.
  Patterns(const char *option, const std::vector<std::string> &texts,
           Diagnostics &diagnostics);

  bool match(const std::string &name);

  /// Reports those that have matched nothing, with the nearest of `names`.
  void reportUnmatched(const std::vector<std::string> &names,
                       Diagnostics &diagnostics) const;

private:
  const char *option;
  const std::vector<std::string> &texts;
  std::vector<llvm::Regex> patterns;
  std::vector<bool> matched;
};

} // namespace pipec::onnx
