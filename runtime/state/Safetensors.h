//===- Safetensors.h - files of named tensors -------------------*- C++ -*-===//
//
// The safetensors format: the length of a JSON header in 8 bytes, the header
// ({name: {dtype, shape, data_offsets}}, and text under __metadata__), the
// data.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/state/Tensors.h"

#include <map>
#include <string>
#include <vector>

namespace pipec {

/// What a written shard is checked by.
struct ShardSeal {
  int64_t bytes = 0;
  std::string sha256;
};

/// Writes the tensors in the order given; the file is on the disk afterwards.
/// Failure(CannotWrite), which names `shown`.
ShardSeal writeSafetensors(const std::string &path, const std::string &shown,
                           Device &device, const std::vector<Tensor> &tensors,
                           const std::map<std::string, std::string> &metadata);

/// A shard's header.
class Safetensors {
public:
  /// Failure(BadPlan) when it is missing or not such a file.
  explicit Safetensors(const std::string &path);

  struct Entry {
    std::string dtype; ///< numpy's name
    std::vector<int64_t> shape;
    int64_t offset = 0, bytes = 0; ///< in the file
  };
  std::map<std::string, Entry> entries;
  std::map<std::string, std::string> metadata;

  /// Reads a tensor's bytes into a device's memory. Failure(BadPlan) when they
  /// end early.
  void read(const Entry &entry, Device &device, char *to) const;

  const std::string path;
};

} // namespace pipec
