//===- Npy.h - a .npy file, memory-mapped -----------------------*- C++ -*-===//
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipec {

/// A read-only array in C order. Formats 1.0 to 3.0, little-endian numbers and
/// booleans.
class Npy {
public:
  /// Failure(NoInput) when the file cannot be read, Failure(BadModel) when it
  /// is not such an array or shorter than its header says. `wanted`: the type
  /// that a remedy says to save it as.
  explicit Npy(const std::string &path, const std::string &wanted = "float32");
  ~Npy();
  Npy(const Npy &) = delete;
  Npy &operator=(const Npy &) = delete;

  const std::string path;
  std::string dtype; ///< numpy's name: float32, int64, bool, ...
  std::vector<int64_t> shape;
  int64_t itemBytes = 0;

  const char *data() const { return mapping + start; }

private:
  void parse(const std::string &header, const std::string &wanted);

  const char *mapping = nullptr;
  int64_t size = 0, start = 0;
};

} // namespace pipec
