//===- OnnxTensor.cpp - a TensorProto as it stands in a file --------------===//
#include "runtime/OnnxTensor.h"
#include "support/Failure.h"
#include "support/NarrowFloat.h"

#include <climits>
#include <cstdlib>
#include <cstring>

namespace pipec {
namespace {

using wire::Bytes;
using wire::Field;

// onnx.proto
enum : uint32_t {
  kTensorDims = 1,
  kTensorType = 2,
  kTensorFloats = 4,
  kTensorInt32s = 5,
  kTensorStrings = 6,
  kTensorInt64s = 7,
  kTensorName = 8,
  kTensorRaw = 9,
  kTensorDoubles = 10,
  kTensorUint64s = 11,
  kTensorExternal = 13,
  kTensorLocation = 14,
  kEntryKey = 1,
  kEntryValue = 2,
};
enum : uint64_t { kExternal = 1 };

constexpr OnnxElementType kTypes[] = {
    {1, "float32", 4},  {2, "uint8", 1},   {3, "int8", 1},
    {4, "uint16", 2},   {5, "int16", 2},   {6, "int32", 4},
    {7, "int64", 8},    {9, "bool", 1},    {10, "float16", 2},
    {11, "float64", 8}, {12, "uint32", 4}, {13, "uint64", 8},
    {16, "bfloat16", 2}};

const OnnxElementType *typeOf(uint64_t onnx) {
  for (const OnnxElementType &type : kTypes)
    if (type.onnx == onnx)
      return &type;
  return nullptr;
}

/// "location", "offset" or "length" of external data.
void readEntry(Bytes message, const std::string &file, OnnxTensor &tensor) {
  std::string key, value;
  wire::forEach(message, file, [&](const Field &field) {
    if (field.number == kEntryKey)
      key = field.payload.text();
    else if (field.number == kEntryValue)
      value = field.payload.text();
  });
  if (key == "location")
    tensor.location = value;
  else if (key == "offset")
    tensor.offset = std::strtoll(value.c_str(), nullptr, 10);
  else if (key == "length")
    tensor.length = std::strtoll(value.c_str(), nullptr, 10);
}

bool holdsData(uint32_t number) {
  switch (number) {
  case kTensorFloats:
  case kTensorInt32s:
  case kTensorStrings:
  case kTensorInt64s:
  case kTensorRaw:
  case kTensorDoubles:
  case kTensorUint64s:
  case kTensorExternal:
  case kTensorLocation:
    return true;
  default:
    return false;
  }
}

std::string entry(const std::string &key, const std::string &value) {
  std::string message;
  wire::putBytes(message, kEntryKey, key);
  wire::putBytes(message, kEntryValue, value);
  std::string field;
  wire::putBytes(field, kTensorExternal, message);
  return field;
}

} // namespace

void convertFloats(const char *data, int64_t bytes, const OnnxElementType &type,
                   std::vector<char> &out) {
  out.clear();
  auto append = [&](auto element) {
    const char *raw = reinterpret_cast<const char *>(&element);
    out.insert(out.end(), raw, raw + sizeof element);
  };
  for (int64_t at = 0; at < bytes; at += 4) {
    float value;
    std::memcpy(&value, data + at, 4);
    if (type.onnx == 10)
      append(toHalf(value));
    else if (type.onnx == 16)
      append(toBfloat(value));
    else
      append(static_cast<double>(value));
  }
}

OnnxTensor readOnnxTensor(Bytes message, const std::string &file) {
  OnnxTensor tensor;
  const auto bad = [&](const std::string &what) {
    throw Failure(Exit::BadModel,
                  file + ": initializer '" + tensor.name + "' has " + what);
  };
  tensor.message = message;
  wire::forEach(message, file, [&](const Field &field) {
    switch (field.number) {
    case kTensorName:
      tensor.name = field.payload.text();
      break;
    case kTensorType:
      tensor.type = typeOf(field.value);
      break;
    case kTensorDims:
      wire::forEachVarint(field, file, [&](uint64_t dim) {
        if (dim > INT_MAX && dim > uint64_t(INT64_MAX) / 64)
          bad("an absurd shape");
        if (dim && tensor.elements > INT64_MAX / 64 / int64_t(dim))
          bad("an absurd shape");
        tensor.elements *= static_cast<int64_t>(dim);
      });
      break;
    case kTensorLocation:
      tensor.external = field.value == kExternal;
      break;
    case kTensorExternal:
      readEntry(field.payload, file, tensor);
      break;
    default:
      break;
    }
  });
  if (tensor.external && !tensor.type)
    bad("an unknown type");
  return tensor;
}

std::string headOf(const OnnxTensor &tensor, const std::string &file,
                   const std::optional<OnnxPlace> &place) {
  std::string message;
  bool named = false; // in a Constant node it need not be
  wire::forEach(tensor.message, file, [&](const Field &field) {
    if (field.number == kTensorName) {
      wire::putBytes(message, kTensorName, tensor.name);
      named = true;
    } else if (!holdsData(field.number)) {
      message.append(field.whole.begin, field.whole.size());
    }
  });
  if (!named)
    wire::putBytes(message, kTensorName, tensor.name);
  if (place) {
    message += entry("location", place->file);
    message += entry("offset", std::to_string(place->offset));
    message += entry("length", std::to_string(tensor.bytes()));
    wire::putTag(message, kTensorLocation, 0);
    wire::putVarint(message, kExternal);
  } else {
    wire::putTag(message, kTensorRaw, 2);
    wire::putVarint(message, static_cast<uint64_t>(tensor.bytes()));
  }
  return message;
}

} // namespace pipec
