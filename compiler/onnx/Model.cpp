//===- Model.cpp - an ONNX model as plain data ----------------------------===//
#include "compiler/onnx/Model.h"
#include "compiler/onnx/Files.h"

#include <limits>

namespace pipec::onnx {

int64_t byteWidth(ElementType type) {
  switch (type) {
  case ElementType::Uint8:
  case ElementType::Int8:
  case ElementType::Bool:
    return 1;
  case ElementType::Uint16:
  case ElementType::Int16:
  case ElementType::Float16:
  case ElementType::Bfloat16:
    return 2;
  case ElementType::Float:
  case ElementType::Int32:
  case ElementType::Uint32:
    return 4;
  case ElementType::Double:
  case ElementType::Int64:
  case ElementType::Uint64:
    return 8;
  default:
    return 0;
  }
}

std::string typeName(ElementType type) {
  static const char *const names[] = {
      "undefined", "float32", "uint8",     "int8",       "uint16",  "int16",
      "int32",     "int64",   "string",    "bool",       "float16", "float64",
      "uint32",    "uint64",  "complex64", "complex128", "bfloat16"};
  const auto index = static_cast<size_t>(type);
  if (index < std::size(names))
    return names[index];
  return "type " + std::to_string(static_cast<int32_t>(type));
}

bool isFloating(ElementType type) {
  return type == ElementType::Float || type == ElementType::Double ||
         type == ElementType::Float16 || type == ElementType::Bfloat16;
}

const std::string *lookup(const Metadata &metadata, std::string_view key) {
  for (const auto &[name, value] : metadata)
    if (name == key)
      return &value;
  return nullptr;
}

int64_t TensorData::elements() const {
  int64_t n = 1;
  for (const int64_t dim : dims)
    if (dim == 0)
      return 0;
  for (const int64_t dim : dims)
    if (__builtin_mul_overflow(n, dim, &n))
      return std::numeric_limits<int64_t>::max();
  return n;
}

std::string_view Model::bytesOf(const TensorData &tensor) const {
  if (tensor.file < 0)
    return tensor.bytes;
  return {files[tensor.file].data + tensor.offset,
          static_cast<size_t>(tensor.length)};
}

std::string_view Model::wholeOf(const TensorData &tensor) const {
  return partOf(tensor, 0, std::string_view::npos);
}

std::string_view Model::partOf(const TensorData &tensor, size_t first,
                               size_t count) const {
  const std::string_view bytes = bytesOf(tensor).substr(first, count);
  if (tensor.file >= 0)
    readAhead(bytes);
  return bytes;
}

} // namespace pipec::onnx
