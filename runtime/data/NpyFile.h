//===- NpyFile.h - a .npy file that fills up in any order -------*- C++ -*-===//
#pragma once

#include "support/OutputFile.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pipec {

/// An array being written, little-endian, in C order. It takes its name when it
/// is committed; every error is Failure(CannotWrite).
class NpyFile {
public:
  /// Failure(BadModel) for an element type that the format has no name for.
  NpyFile(const std::string &path, const std::string &dtype,
          const std::vector<int64_t> &shape);

  /// Bytes [offset, offset + bytes) of the array.
  void write(int64_t offset, const void *data, int64_t bytes);
  void commit() { file.commit(); }

private:
  AtomicFile file;
  int64_t start = 0;
};

} // namespace pipec
