//===- Sha256.h - digests of files ------------------------------*- C++ -*-===//
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace pipec {

/// SHA-256 (FIPS 180-4) of a stream of bytes; uses the CPU's instructions for
/// it where there are any.
class Sha256 {
public:
  Sha256();
  void add(const void *data, size_t bytes);
  /// The digest as 64 hex digits. No more data may follow.
  std::string hex();

private:
  std::array<uint32_t, 8> state;
  std::array<unsigned char, 64> block;
  size_t filled = 0;
  uint64_t total = 0;
};

/// The digest of a whole file; Failure(NoInput) when it cannot be read.
std::string sha256OfFile(const std::string &path);

} // namespace pipec
