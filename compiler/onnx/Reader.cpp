//===- Reader.cpp - a model file to plain data ----------------------------===//
#include "compiler/onnx/Reader.h"
#include "compiler/onnx/Constants.h"
#include "compiler/onnx/Files.h"
#include "compiler/onnx/Wire.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <limits>
#include <onnx/onnx_pb.h>

namespace proto = ONNX_NAMESPACE;

namespace pipec::onnx {

static_assert(std::endian::native == std::endian::little,
              "tensor data is used as it stands in the file");

/// More elements than any tensor can have; products are kept below it.
static constexpr int64_t kMostElements = int64_t(1) << 46;

//===----------------------------------------------------------------------===//
// Metadata: fields newer than the message classes are unknown fields
//===----------------------------------------------------------------------===//

/// Field `number` of a message, a repeated StringStringEntryProto.
static Metadata metadataOf(const google::protobuf::Message &message,
                           int number) {
  Metadata out;
  const auto *reflection = message.GetReflection();
  if (const auto *field = message.GetDescriptor()->FindFieldByNumber(number)) {
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      const auto &entry = dynamic_cast<const proto::StringStringEntryProto &>(
          reflection->GetRepeatedMessage(message, field, i));
      out.emplace_back(entry.key(), entry.value());
    }
    return out;
  }
  const auto &unknown = reflection->GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    const auto &field = unknown.field(i);
    proto::StringStringEntryProto entry;
    if (field.number() == number &&
        field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED &&
        entry.ParseFromString(field.length_delimited()))
      out.emplace_back(entry.key(), entry.value());
  }
  return out;
}

/// Field `number` of a message, a string.
static std::string stringField(const google::protobuf::Message &message,
                               int number) {
  const auto *reflection = message.GetReflection();
  if (const auto *field = message.GetDescriptor()->FindFieldByNumber(number))
    return reflection->GetString(message, field);
  const auto &unknown = reflection->GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i)
    if (unknown.field(i).number() == number &&
        unknown.field(i).type() ==
            google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
      return unknown.field(i).length_delimited();
  return "";
}

//===----------------------------------------------------------------------===//
// Conversion
//===----------------------------------------------------------------------===//

namespace {

class Converter {
public:
  Converter(Model &model, const StrippedModel &stripped, std::string folder)
      : model(model), stripped(stripped), folder(std::move(folder)) {}

  void convert(const proto::ModelProto &m);

private:
  TensorData tensor(const proto::TensorProto &t, const Span &span);
  void external(const proto::TensorProto &t, TensorData &out);
  int externalFile(const std::string &name, TensorData &out);
  Attribute attribute(const proto::AttributeProto &a, const Span &span);
  Node node(const proto::NodeProto &n, int index);
  ValueInfo valueInfo(const proto::ValueInfoProto &v);
  /// `top`: the main graph, whose tensors were taken out of the message.
  Graph graph(const proto::GraphProto &g, bool top);
  Function function(const proto::FunctionProto &f);

  Model &model;
  const StrippedModel &stripped;
  std::string folder;
  std::map<std::string, int> fileIndex;
  std::map<std::string, std::pair<std::string, bool>> fileProblem;
};

} // namespace

/// The product of the dimensions, or nothing when one is negative or the
/// product is absurd.
static std::optional<int64_t>
checkedElements(const std::vector<int64_t> &dims) {
  int64_t n = 1;
  bool zero = false;
  for (const int64_t dim : dims) {
    zero |= dim == 0;
    if (dim < 0 || __builtin_mul_overflow(n, std::max<int64_t>(dim, 1), &n) ||
        n > kMostElements)
      return std::nullopt;
  }
  if (zero)
    return 0;
  return n;
}

template <typename To, typename Repeated>
static std::string packBytes(const Repeated &values) {
  std::string out(values.size() * sizeof(To), '\0');
  char *at = out.data();
  for (const auto value : values) {
    const To narrow = static_cast<To>(value);
    std::memcpy(at, &narrow, sizeof(To));
    at += sizeof(To);
  }
  return out;
}

/// The elements from the typed fields of the message.
static std::string typedData(const proto::TensorProto &t, ElementType type) {
  switch (type) {
  case ElementType::Float:
    return packBytes<float>(t.float_data());
  case ElementType::Double:
    return packBytes<double>(t.double_data());
  case ElementType::Int64:
    return packBytes<int64_t>(t.int64_data());
  case ElementType::Uint64:
    return packBytes<uint64_t>(t.uint64_data());
  case ElementType::Uint32:
    return packBytes<uint32_t>(t.uint64_data());
  case ElementType::Int32:
    return packBytes<int32_t>(t.int32_data());
  case ElementType::Int16:
  case ElementType::Uint16:
  case ElementType::Float16:
  case ElementType::Bfloat16:
    return packBytes<uint16_t>(t.int32_data());
  case ElementType::Int8:
  case ElementType::Uint8:
  case ElementType::Bool:
    return packBytes<uint8_t>(t.int32_data());
  default:
    return "";
  }
}

/// A non-negative decimal number.
static std::optional<int64_t> parseNumber(const std::string &text) {
  if (text.empty() || text.size() > 18 ||
      text.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(text);
}

int Converter::externalFile(const std::string &name, TensorData &out) {
  if (auto known = fileIndex.find(name); known != fileIndex.end())
    return known->second;
  if (auto bad = fileProblem.find(name); bad != fileProblem.end()) {
    std::tie(out.problem, out.missingFile) = bad->second;
    return -1;
  }
  std::string why;
  const std::string path = externalPath(folder, name, why);
  std::shared_ptr<const MappedFile> file;
  if (path.empty()) {
    out.problem = why;
  } else if (!(file = MappedFile::open(path, why, Reads::Parts))) {
    out.problem =
        "its external data file '" + name + "' cannot be read: " + why;
    out.missingFile = true;
  }
  if (!file) {
    fileProblem[name] = {out.problem, out.missingFile};
    return -1;
  }
  const auto index = static_cast<int>(model.files.size());
  model.files.push_back({path, name, file->bytes().data(),
                         static_cast<int64_t>(file->bytes().size())});
  model.mappings.push_back(file);
  return fileIndex[name] = index;
}

void Converter::external(const proto::TensorProto &t, TensorData &out) {
  std::string location, offset = "0", length;
  for (const auto &entry : t.external_data()) {
    if (entry.key() == "location")
      location = entry.value();
    else if (entry.key() == "offset")
      offset = entry.value();
    else if (entry.key() == "length")
      length = entry.value();
  }
  const int file = externalFile(location, out);
  if (file < 0)
    return;
  const int64_t expected = out.elements() * byteWidth(out.type);
  const std::optional<int64_t> from = parseNumber(offset);
  const std::optional<int64_t> count =
      length.empty() ? expected : parseNumber(length);
  const int64_t size = model.files[file].size;
  if (!from || !count) {
    out.problem = "its external data is bytes " + offset + " + " +
                  (length.empty() ? std::to_string(expected) : length) +
                  " of '" + location + "', which are no numbers";
    return;
  }
  if (*from > size || *count > size - *from) { // the same text for all of them
    out.problem = "its external data lies behind the end of '" + location +
                  "', which has " + std::to_string(size) + " bytes";
    out.needs = *from + *count;
    return;
  }
  out.file = file;
  out.offset = *from;
  out.length = *count;
}

TensorData Converter::tensor(const proto::TensorProto &t, const Span &span) {
  TensorData out;
  out.name = t.name();
  out.type = static_cast<ElementType>(t.data_type());
  out.dims.assign(t.dims().begin(), t.dims().end());
  const std::optional<int64_t> elements = checkedElements(out.dims);
  if (!elements) {
    out.problem = "its dimensions are negative or absurdly large";
    return out;
  }
  if (out.type == ElementType::String) {
    out.strings.assign(t.string_data().begin(), t.string_data().end());
    if (static_cast<int64_t>(out.strings.size()) != *elements)
      out.problem = "it has another number of strings than its shape says";
    return out;
  }
  const int64_t width = byteWidth(out.type);
  if (width == 0) {
    out.problem =
        "its element type " + typeName(out.type) + " is not supported";
    return out;
  }
  if (t.has_segment()) {
    out.problem = "it is stored in segments, which no exporter writes";
    return out;
  }
  if (t.data_location() == proto::TensorProto::EXTERNAL) {
    external(t, out);
  } else if (span.offset >= 0) {
    out.file = 0;
    out.offset = span.offset;
    out.length = span.length;
  } else {
    out.bytes = t.has_raw_data() ? t.raw_data() : typedData(t, out.type);
    out.length = static_cast<int64_t>(out.bytes.size());
  }
  if (out.problem.empty() && out.length != *elements * width)
    out.problem = "it has " + std::to_string(out.length) +
                  " bytes, but its shape and type need " +
                  std::to_string(*elements * width);
  if (!out.problem.empty())
    out.file = -1;
  return out;
}

Attribute Converter::attribute(const proto::AttributeProto &a,
                               const Span &span) {
  Attribute out;
  out.name = a.name();
  out.kind = static_cast<Attribute::Kind>(a.type());
  out.reference = a.ref_attr_name();
  out.f = a.f();
  out.i = a.i();
  out.s = a.s();
  out.floats.assign(a.floats().begin(), a.floats().end());
  out.ints.assign(a.ints().begin(), a.ints().end());
  out.strings.assign(a.strings().begin(), a.strings().end());
  if (a.has_t())
    out.tensor = std::make_shared<TensorData>(tensor(a.t(), span));
  if (a.has_g())
    out.graph = std::make_shared<Graph>(graph(a.g(), /*top=*/false));
  return out;
}

Node Converter::node(const proto::NodeProto &n, int index) {
  Node out;
  out.name = n.name();
  out.op = n.op_type();
  out.domain = n.domain() == "ai.onnx" ? "" : n.domain();
  out.overload = stringField(n, 8);
  out.inputs.assign(n.input().begin(), n.input().end());
  out.outputs.assign(n.output().begin(), n.output().end());
  for (int i = 0; i < n.attribute_size(); ++i) {
    const auto span = stripped.attributeTensors.find({index, i});
    out.attributes.push_back(attribute(
        n.attribute(i),
        span == stripped.attributeTensors.end() ? Span() : span->second));
  }
  out.metadata = metadataOf(n, 9);
  return out;
}

ValueInfo Converter::valueInfo(const proto::ValueInfoProto &v) {
  ValueInfo out;
  out.name = v.name();
  out.isTensor = v.type().has_tensor_type() || !v.has_type();
  out.metadata = metadataOf(v, 4);
  const auto &type = v.type().tensor_type();
  out.type = static_cast<ElementType>(type.elem_type());
  if (!type.has_shape())
    return out;
  std::vector<Dim> dims;
  for (const auto &d : type.shape().dim()) {
    Dim dim;
    // Some exporters write -1 for a dimension that they do not know.
    if (d.has_dim_value() && d.dim_value() >= 0)
      dim.value = d.dim_value();
    dim.symbol = d.dim_param();
    dims.push_back(std::move(dim));
  }
  out.shape = std::move(dims);
  return out;
}

Graph Converter::graph(const proto::GraphProto &g, bool top) {
  Graph out;
  out.name = g.name();
  for (int i = 0; i < g.node_size(); ++i)
    out.nodes.push_back(node(g.node(i), top ? i : -1));
  for (int i = 0; i < g.initializer_size(); ++i)
    out.initializers.push_back(
        tensor(g.initializer(i), top ? stripped.initializers[i] : Span()));
  for (const auto &s : g.sparse_initializer())
    out.sparseInitializers.push_back(s.values().name());
  for (const auto &v : g.input())
    out.inputs.push_back(valueInfo(v));
  for (const auto &v : g.output())
    out.outputs.push_back(valueInfo(v));
  for (const auto &v : g.value_info())
    out.valueInfo.push_back(valueInfo(v));
  out.metadata = metadataOf(g, 16);
  return out;
}

Function Converter::function(const proto::FunctionProto &f) {
  Function out;
  out.name = f.name();
  out.domain = f.domain() == "ai.onnx" ? "" : f.domain();
  out.overload = stringField(f, 13);
  out.inputs.assign(f.input().begin(), f.input().end());
  out.outputs.assign(f.output().begin(), f.output().end());
  out.attributes.assign(f.attribute().begin(), f.attribute().end());
  const auto &unknown = f.GetReflection()->GetUnknownFields(f);
  for (int i = 0; i < unknown.field_count(); ++i) {
    proto::AttributeProto a;
    if (unknown.field(i).number() == 11 &&
        unknown.field(i).type() ==
            google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED &&
        a.ParseFromString(unknown.field(i).length_delimited()))
      out.defaults.push_back(attribute(a, Span()));
  }
  for (const auto &n : f.node())
    out.nodes.push_back(node(n, -1));
  for (const auto &o : f.opset_import())
    out.opsets[o.domain() == "ai.onnx" ? "" : o.domain()] = o.version();
  return out;
}

void Converter::convert(const proto::ModelProto &m) {
  model.irVersion = m.ir_version();
  model.producer = m.producer_name();
  model.producerVersion = m.producer_version();
  for (const auto &o : m.opset_import())
    model.opsets[o.domain() == "ai.onnx" ? "" : o.domain()] = o.version();
  model.graph = graph(m.graph(), /*top=*/true);
  for (const auto &f : m.functions())
    model.functions.push_back(function(f));
  model.hasTrainingInfo = m.training_info_size() > 0;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

static bool parse(const std::string &message, proto::ModelProto &m) {
  if (message.size() > std::numeric_limits<int>::max())
    return false;
  google::protobuf::io::CodedInputStream stream(
      reinterpret_cast<const uint8_t *>(message.data()),
      static_cast<int>(message.size()));
  stream.SetTotalBytesLimit(std::numeric_limits<int>::max());
  return m.ParseFromCodedStream(&stream) && stream.ConsumedEntireMessage();
}

/// Reports every tensor whose elements cannot be had, those of the same file or
/// kind of problem together.
static void reportTensors(const std::vector<TensorData> &tensors,
                          Diagnostics &diagnostics) {
  std::map<std::string, int> mentioned;
  for (const TensorData &t : tensors) {
    if (t.problem.empty() || ++mentioned[t.problem] > 1)
      continue;
    int64_t same = 0, needs = 0;
    for (const TensorData &other : tensors)
      if (other.problem == t.problem) {
        ++same;
        needs = std::max(needs, other.needs);
      }
    const std::string rest =
        same > 1 ? " (and " + std::to_string(same - 1) + " other tensors)" : "";
    diagnostics.add(
        t.missingFile ? Exit::NoInput : Exit::BadModel,
        "initializer '" + t.name + "'" + rest + ": " + t.problem +
            (needs ? " and would need " + std::to_string(needs) : ""),
        t.missingFile ? "put the file beside the model, as the exporter wrote "
                        "it"
        : needs ? "the file is cut off, or another model's: copy the whole "
                  "file, as the exporter wrote it beside the model"
                : "export the model again");
  }
}

std::unique_ptr<Model> readModel(std::string_view bytes,
                                 const std::string &name,
                                 const std::string &folder,
                                 Diagnostics &diagnostics) {
  const std::string remedy = "export the model again, or copy the whole file";
  if (bytes.empty()) {
    diagnostics.add(Exit::BadModel, "the file is empty", remedy);
    return nullptr;
  }
  StrippedModel stripped;
  std::string why;
  proto::ModelProto message;
  if (!stripTensors(bytes, stripped, why) ||
      !parse(stripped.message, message)) {
    if (why.empty())
      why = "the bytes are not an ONNX model: the file is damaged, incomplete "
            "or something else";
    diagnostics.add(Exit::BadModel, why, remedy);
    return nullptr;
  }
  if (!message.has_graph() || message.ir_version() <= 0) {
    diagnostics.add(Exit::BadModel,
                    message.has_graph() ? "the model has no IR version"
                                        : "the model has no graph",
                    remedy);
    return nullptr;
  }
  auto model = std::make_unique<Model>();
  model->files.push_back({name, std::filesystem::path(name).filename().string(),
                          bytes.data(), static_cast<int64_t>(bytes.size())});
  std::string().swap(stripped.message);
  Converter(*model, stripped, folder).convert(message);
  liftConstants(*model);
  reportTensors(model->graph.initializers, diagnostics);
  return model;
}

std::unique_ptr<Model> readModel(const std::string &path,
                                 Diagnostics &diagnostics) {
  std::string why;
  const std::shared_ptr<const MappedFile> file = MappedFile::open(path, why);
  if (!file) {
    diagnostics.add(Exit::NoInput, "the file cannot be read: " + why,
                    "check the path and its permissions");
    return nullptr;
  }
  std::unique_ptr<Model> model = readModel(
      file->bytes(), path, std::filesystem::path(path).parent_path().string(),
      diagnostics);
  if (model)
    model->mappings.push_back(file);
  return model;
}

} // namespace pipec::onnx
