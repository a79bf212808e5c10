//===- OnnxTensor.h - a TensorProto as it stands in a file ------*- C++ -*-===//
#pragma once

#include "runtime/WireFormat.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pipec {

struct OnnxElementType {
  uint64_t onnx; ///< TensorProto.DataType
  const char *name;
  int bytes;
};

/// `bytes` of float32, as elements of a floating type.
void convertFloats(const char *data, int64_t bytes, const OnnxElementType &type,
                   std::vector<char> &out);

struct OnnxTensor {
  wire::Bytes message;
  std::string name;
  const OnnxElementType *type = nullptr; ///< null: of no known type
  int64_t elements = 1;
  bool external = false;
  std::string location;
  int64_t offset = 0;
  std::optional<int64_t> length;

  int64_t bytes() const { return elements * type->bytes; }
};

/// Reads all but the elements. Failure(BadModel) names `file`.
OnnxTensor readOnnxTensor(wire::Bytes message, const std::string &file);

/// Where a tensor's elements are from now on: in another file.
struct OnnxPlace {
  std::string file;
  int64_t offset = 0;
};

/// The message of the tensor without its elements: whole where they are at a
/// `place`, else up to the elements, tensor.bytes() of which have to follow.
std::string headOf(const OnnxTensor &tensor, const std::string &file,
                   const std::optional<OnnxPlace> &place);

} // namespace pipec
