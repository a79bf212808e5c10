//===- Model.h - an ONNX model as plain data --------------------*- C++ -*-===//
//
// What the reader makes of a file and the importer reads: no protobuf here, and
// no copy of a weight. Fields that newer ONNX versions added (metadata,
// overloads) are there whatever version the protobuf classes know.
//
//===----------------------------------------------------------------------===//

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pipec::onnx {

/// TensorProto.DataType.
enum class ElementType : int32_t {
  Undefined = 0,
  Float = 1,
  Uint8 = 2,
  Int8 = 3,
  Uint16 = 4,
  Int16 = 5,
  Int32 = 6,
  Int64 = 7,
  String = 8,
  Bool = 9,
  Float16 = 10,
  Double = 11,
  Uint32 = 12,
  Uint64 = 13,
  Complex64 = 14,
  Complex128 = 15,
  Bfloat16 = 16,
};

/// Bytes of an element in raw_data, 0 for types without (string, sub-byte
/// types).
int64_t byteWidth(ElementType type);
/// "float32", "int64"; "type 23" for what this build does not know.
std::string typeName(ElementType type);
bool isFloating(ElementType type);

/// Key-value pairs an exporter left behind.
using Metadata = std::vector<std::pair<std::string, std::string>>;
/// The value of a key, or null.
const std::string *lookup(const Metadata &metadata, std::string_view key);

/// The elements of a tensor: bytes of a file by reference, or own bytes. Always
/// little endian and row-major.
struct TensorData {
  std::string name;
  ElementType type = ElementType::Undefined;
  std::vector<int64_t> dims;
  int file = -1; ///< index into Model::files, or -1 for `bytes`
  int64_t offset = 0, length = 0;
  std::string bytes;
  std::vector<std::string> strings; ///< of a string tensor
  std::string problem;      ///< why the elements cannot be had, or empty
  bool missingFile = false; ///< the problem is a file that is not there
  int64_t needs = 0;        ///< the problem is a file of fewer bytes than these

  /// The product of the dimensions; absurd ones give the largest number.
  int64_t elements() const;
};

struct Graph;

/// One attribute; `kind` is AttributeProto.AttributeType.
struct Attribute {
  enum Kind {
    Undefined = 0,
    Float = 1,
    Int = 2,
    String = 3,
    Tensor = 4,
    GraphKind = 5,
    Floats = 6,
    Ints = 7,
    Strings = 8,
    Tensors = 9,
    Graphs = 10,
    SparseTensor = 11,
    SparseTensors = 12,
    Type = 13,
    Types = 14,
  };
  std::string name;
  Kind kind = Undefined;
  std::string reference; ///< name of the function attribute it stands for
  float f = 0;
  int64_t i = 0;
  std::string s;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string> strings;
  std::shared_ptr<const TensorData> tensor;
  std::shared_ptr<const Graph> graph;
};

struct Node {
  std::string name, op, domain, overload;
  std::vector<std::string> inputs, outputs; ///< empty: left out
  std::vector<Attribute> attributes;
  Metadata metadata;
};

/// A dimension: a number, a symbol, or neither.
struct Dim {
  std::optional<int64_t> value;
  std::string symbol;
};

struct ValueInfo {
  std::string name;
  ElementType type = ElementType::Undefined;
  bool isTensor = true; ///< not a sequence, map or optional
  std::optional<std::vector<Dim>> shape;
  Metadata metadata;
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<TensorData> initializers;
  std::vector<ValueInfo> inputs, outputs, valueInfo;
  std::vector<std::string> sparseInitializers; ///< names; not supported
  Metadata metadata;
};

/// A model-local function.
struct Function {
  std::string name, domain, overload;
  std::vector<std::string> inputs, outputs, attributes;
  std::vector<Attribute> defaults;
  std::vector<Node> nodes;
  std::map<std::string, int64_t> opsets;
};

/// A file that tensors refer to.
struct DataFile {
  std::string path;     ///< as opened
  std::string relative; ///< as the model names it; the model itself: its name
  const char *data = nullptr;
  int64_t size = 0;
};

struct Model {
  int64_t irVersion = 0;
  std::string producer, producerVersion;
  std::map<std::string, int64_t> opsets; ///< domain to version; "" is ai.onnx
  Graph graph;
  std::vector<Function> functions;
  bool hasTrainingInfo = false;
  std::vector<DataFile> files; ///< [0] is the model
  /// Keeps the mappings of `files` alive.
  std::vector<std::shared_ptr<const void>> mappings;

  /// The bytes of a tensor, of which a few are looked at.
  std::string_view bytesOf(const TensorData &tensor) const;
  /// The bytes of a tensor, or so many of them, to read through.
  std::string_view wholeOf(const TensorData &tensor) const;
  std::string_view partOf(const TensorData &tensor, size_t first,
                          size_t count) const;
  /// That all bytes of a tensor will be read.
  void announce(const TensorData &tensor) const { wholeOf(tensor); }
};

} // namespace pipec::onnx
