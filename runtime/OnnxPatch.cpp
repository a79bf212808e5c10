//===- OnnxPatch.cpp - new weights for an ONNX file -----------------------===//
#include "runtime/OnnxPatch.h"
#include "runtime/WireFormat.h"
#include "support/Failure.h"
#include "support/NarrowFloat.h"
#include "support/OutputFile.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

namespace pipec {
namespace {

using wire::Bytes;
using wire::Field;

// onnx.proto
enum : uint32_t {
  kModelGraph = 7,
  kGraphNode = 1,
  kNodeInput = 1,
  kNodeOutput = 2,
  kNodeOperator = 4,
  kNodeAttribute = 5,
  kAttributeTensor = 5,
  kGraphInitializer = 5,
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

struct ElementType {
  uint64_t onnx;
  const char *name;
  int bytes;
};
constexpr ElementType kTypes[] = {
    {1, "float32", 4},  {2, "uint8", 1},   {3, "int8", 1},
    {4, "uint16", 2},   {5, "int16", 2},   {6, "int32", 4},
    {7, "int64", 8},    {9, "bool", 1},    {10, "float16", 2},
    {11, "float64", 8}, {12, "uint32", 4}, {13, "uint64", 8},
    {16, "bfloat16", 2}};

const ElementType *typeOf(uint64_t onnx) {
  for (const ElementType &type : kTypes)
    if (type.onnx == onnx)
      return &type;
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Conversion of float32
//===----------------------------------------------------------------------===//

/// Appends `bytes` of float32 as elements of `type`.
void convert(const char *data, int64_t bytes, const ElementType &type,
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

//===----------------------------------------------------------------------===//
// An initializer
//===----------------------------------------------------------------------===//

struct Tensor {
  Bytes message;
  std::string name;
  const ElementType *type = nullptr;
  int64_t elements = 1;
  bool external = false;
  std::string location;
  int64_t offset = 0;
  std::optional<int64_t> length;

  const NewValues *values = nullptr; ///< to be written, or null
  int64_t newOffset = 0;             ///< in the new data file

  int64_t bytes() const { return elements * type->bytes; }
  /// Goes to the output as it is.
  bool verbatim() const { return !values && !external; }
};

class Patch {
public:
  Patch(const std::string &source, const std::string &target,
        const std::map<std::string, NewValues> &values)
      : source(source), target(target), values(values), model(source) {}

  void run() {
    collect();
    const std::string dataPath = target + ".data";
    std::unique_ptr<AtomicFile> data;
    if (layOutData())
      data = std::make_unique<AtomicFile>(dataPath);
    AtomicFile out(target);
    writeModel(out.file());
    if (data) {
      writeData(data->file());
      data->commit();
    }
    out.commit(); // last: a model that is there is whole
  }

private:
  [[noreturn]] void bad(const std::string &what) const {
    throw Failure(Exit::BadModel, source + ": " + what);
  }

  void collect() {
    for (auto &[name, value] : values)
      if (!value.of.empty())
        newInputs[value.node][value.input] = name;
    std::set<std::string> found;
    wire::forEach(model.bytes(), source, [&](const Field &field) {
      if (field.number != kModelGraph || !field.isMessage())
        return;
      wire::forEach(field.payload, source, [&](const Field &inner) {
        if (inner.number != kGraphInitializer || !inner.isMessage())
          return;
        Tensor tensor = parseTensor(inner.payload);
        auto value = values.find(tensor.name);
        if (value != values.end()) {
          found.insert(tensor.name);
          tensor.values = &value->second;
          checkValues(tensor);
        }
        tensors.push_back(std::move(tensor));
      });
    });
    for (auto &[name, value] : values)
      if (!found.count(value.of.empty() ? name : value.of)) {
        collectConstants(found);
        break;
      }
    for (auto &[name, value] : values)
      if (!value.of.empty())
        addSplit(name, value);
      else if (!found.count(name))
        bad("has no initializer '" + name + "'");
  }

  /// A tensor like the one it is split from, behind all others.
  void addSplit(const std::string &name, const NewValues &value) {
    const Tensor *of = nullptr;
    for (const Tensor &candidate : tensors)
      if (candidate.name == value.of)
        of = &candidate;
    for (const auto &[node, candidate] : constants)
      if (candidate.name == value.of)
        of = &candidate;
    if (!of)
      bad("has no initializer '" + value.of + "'");
    Tensor tensor = *of;
    tensor.name = name;
    tensor.values = &value;
    checkValues(tensor);
    splits.push_back(std::move(tensor));
  }

  /// Weights that stand in Constant nodes.
  void collectConstants(std::set<std::string> &found) {
    wire::forEach(model.bytes(), source, [&](const Field &field) {
      int64_t node = 0;
      if (field.number != kModelGraph || !field.isMessage())
        return;
      wire::forEach(field.payload, source, [&](const Field &inner) {
        if (inner.number != kGraphNode)
          return;
        const int64_t index = node++;
        std::optional<Tensor> tensor = constantOf(inner.payload);
        if (!tensor || !found.insert(tensor->name).second)
          return;
        tensor->values = &values.at(tensor->name);
        checkValues(*tensor);
        constants.emplace(index, std::move(*tensor));
      });
    });
  }

  /// The tensor of a Constant node whose output has new values.
  std::optional<Tensor> constantOf(Bytes node) const {
    std::string output;
    bool constant = false;
    wire::forEach(node, source, [&](const Field &field) {
      if (field.number == kNodeOutput)
        output = field.payload.text();
      else if (field.number == kNodeOperator)
        constant = field.payload.text() == "Constant";
    });
    std::optional<Tensor> found;
    if (!constant || !values.count(output))
      return found;
    wire::forEach(node, source, [&](const Field &field) {
      if (field.number == kNodeAttribute && field.isMessage())
        wire::forEach(field.payload, source, [&](const Field &part) {
          if (part.number == kAttributeTensor && part.isMessage())
            found = parseTensor(part.payload);
        });
    });
    if (found)
      found->name = output;
    return found;
  }

  Tensor parseTensor(Bytes message) const {
    Tensor tensor;
    tensor.message = message;
    wire::forEach(message, source, [&](const Field &field) {
      switch (field.number) {
      case kTensorName:
        tensor.name = field.payload.text();
        break;
      case kTensorType:
        tensor.type = typeOf(field.value);
        break;
      case kTensorDims:
        wire::forEachVarint(field, source, [&](uint64_t dim) {
          if (dim > INT_MAX && dim > uint64_t(INT64_MAX) / 64)
            bad("initializer '" + tensor.name + "' has an absurd shape");
          if (dim && tensor.elements > INT64_MAX / 64 / int64_t(dim))
            bad("initializer '" + tensor.name + "' has an absurd shape");
          tensor.elements *= static_cast<int64_t>(dim);
        });
        break;
      case kTensorLocation:
        tensor.external = field.value == kExternal;
        break;
      case kTensorExternal:
        parseEntry(field.payload, tensor);
        break;
      default:
        break;
      }
    });
    if (tensor.external && !tensor.type)
      bad("initializer '" + tensor.name + "' has an unknown type");
    return tensor;
  }

  void parseEntry(Bytes message, Tensor &tensor) const {
    std::string key, value;
    wire::forEach(message, source, [&](const Field &field) {
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

  void checkValues(const Tensor &tensor) const {
    const NewValues &given = *tensor.values;
    const std::string type = tensor.type ? tensor.type->name : "unknown";
    const bool converts =
        given.dtype == "float32" &&
        (type == "float16" || type == "bfloat16" || type == "float64");
    if (type != given.dtype && !converts)
      bad("initializer '" + tensor.name + "' is " + type + ", the weight is " +
          given.dtype);
    const int64_t size = converts ? 4 : tensor.type->bytes;
    if (tensor.elements * size != given.bytes)
      bad("initializer '" + tensor.name + "' has another shape");
  }

  /// Places in the new data file; false when nothing goes there.
  bool layOutData() {
    int64_t end = 0;
    bool any = false;
    auto place = [&](Tensor &tensor) {
      if (!tensor.external)
        return;
      any = true;
      // Large ones on a page, so that readers can map them.
      const int64_t unit = tensor.bytes() >= (1 << 20) ? 4096 : 64;
      tensor.newOffset = (end + unit - 1) / unit * unit;
      end = tensor.newOffset + tensor.bytes();
    };
    std::for_each(tensors.begin(), tensors.end(), place);
    for (auto &[node, tensor] : constants)
      place(tensor);
    std::for_each(splits.begin(), splits.end(), place);
    return any;
  }

  //===--------------------------------------------------------------------===//
  // Writing
  //===--------------------------------------------------------------------===//

  static bool holdsData(uint32_t number) {
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

  std::string entry(const std::string &key, const std::string &value) const {
    std::string message;
    wire::putBytes(message, kEntryKey, key);
    wire::putBytes(message, kEntryValue, value);
    std::string field;
    wire::putBytes(field, kTensorExternal, message);
    return field;
  }

  /// The tensor without its data: what precedes raw_data, or all of it.
  std::string head(const Tensor &tensor) const {
    std::string message;
    bool named = false; // in a Constant node it need not be
    wire::forEach(tensor.message, source, [&](const Field &field) {
      if (field.number == kTensorName) {
        wire::putBytes(message, kTensorName, tensor.name);
        named = true;
      } else if (!holdsData(field.number)) {
        message.append(field.whole.begin, field.whole.size());
      }
    });
    if (!named)
      wire::putBytes(message, kTensorName, tensor.name);
    if (tensor.external) {
      const size_t slash = target.rfind('/');
      const std::string name =
          slash == std::string::npos ? target : target.substr(slash + 1);
      message += entry("location", name + ".data");
      message += entry("offset", std::to_string(tensor.newOffset));
      message += entry("length", std::to_string(tensor.bytes()));
      wire::putTag(message, kTensorLocation, 0);
      wire::putVarint(message, kExternal);
    } else {
      wire::putTag(message, kTensorRaw, 2);
      wire::putVarint(message, static_cast<uint64_t>(tensor.bytes()));
    }
    return message;
  }

  int64_t sizeOf(const Tensor &tensor) const {
    if (tensor.verbatim())
      return tensor.message.size();
    const auto size = static_cast<int64_t>(head(tensor).size());
    return tensor.external ? size : size + tensor.bytes();
  }

  /// A node that reads other tensors from now on.
  std::string renamed(const Field &node,
                      const std::map<int64_t, std::string> &inputs) const {
    std::string message, field;
    int64_t input = 0;
    wire::forEach(node.payload, source, [&](const Field &part) {
      auto name =
          part.number == kNodeInput ? inputs.find(input++) : inputs.end();
      if (name == inputs.end())
        message.append(part.whole.begin, part.whole.size());
      else
        wire::putBytes(message, kNodeInput, name->second);
    });
    wire::putBytes(field, kGraphNode, message);
    return field;
  }

  /// Walks a graph: `tensor(i)` for its initializers, `other(bytes)` for the
  /// rest. Initializers are numbered in the order collect() met them; Constant
  /// nodes with new values become initializers.
  template <class OnTensor, class OnOther>
  void walkGraph(Bytes graph, size_t &index, const OnTensor &onTensor,
                 const OnOther &onOther) const {
    int64_t node = 0;
    wire::forEach(graph, source, [&](const Field &field) {
      if (field.number == kGraphInitializer && field.isMessage())
        return onTensor(tensors[index++]);
      const int64_t at = field.number == kGraphNode ? node++ : -1;
      if (auto constant = constants.find(at); constant != constants.end())
        return onTensor(constant->second);
      auto inputs = newInputs.find(at);
      if (inputs == newInputs.end())
        return onOther(field.whole);
      const std::string text = renamed(field, inputs->second);
      onOther({text.data(), text.data() + text.size()});
    });
    for (const Tensor &tensor : splits)
      onTensor(tensor);
  }

  void writeModel(OutputFile &out) const {
    size_t index = 0;
    wire::forEach(model.bytes(), source, [&](const Field &field) {
      if (field.number != kModelGraph || !field.isMessage()) {
        out.write(field.whole.begin, field.whole.size());
        return;
      }
      size_t counting = index;
      int64_t size = 0;
      walkGraph(
          field.payload, counting,
          [&](const Tensor &tensor) {
            std::string start;
            wire::putTag(start, kGraphInitializer, 2);
            wire::putVarint(start, static_cast<uint64_t>(sizeOf(tensor)));
            size += static_cast<int64_t>(start.size()) + sizeOf(tensor);
          },
          [&](Bytes other) { size += other.size(); });
      std::string start;
      wire::putTag(start, kModelGraph, 2);
      wire::putVarint(start, static_cast<uint64_t>(size));
      out.write(start);
      walkGraph(
          field.payload, index,
          [&](const Tensor &tensor) { writeTensor(out, tensor); },
          [&](Bytes other) { out.write(other.begin, other.size()); });
    });
  }

  void writeTensor(OutputFile &out, const Tensor &tensor) const {
    std::string start;
    wire::putTag(start, kGraphInitializer, 2);
    wire::putVarint(start, static_cast<uint64_t>(sizeOf(tensor)));
    out.write(start);
    if (tensor.verbatim()) {
      out.write(tensor.message.begin, tensor.message.size());
      return;
    }
    out.write(head(tensor));
    if (!tensor.external)
      writeValues(out, tensor);
  }

  void writeValues(OutputFile &out, const Tensor &tensor) const {
    const int64_t before = out.bytes();
    const bool same = tensor.values->dtype == tensor.type->name;
    std::vector<char> converted;
    tensor.values->give([&](const char *data, int64_t bytes) {
      if (same)
        return out.write(data, bytes);
      convert(data, bytes, *tensor.type, converted);
      out.write(converted.data(), static_cast<int64_t>(converted.size()));
    });
    if (out.bytes() - before != tensor.bytes())
      throw Failure(Exit::Internal,
                    "initializer '" + tensor.name + "' got too few values");
  }

  void writeData(OutputFile &out) const {
    for (const Tensor &tensor : tensors)
      writeData(out, tensor);
    for (const auto &[node, tensor] : constants)
      writeData(out, tensor);
    for (const Tensor &tensor : splits)
      writeData(out, tensor);
  }

  void writeData(OutputFile &out, const Tensor &tensor) const {
    if (!tensor.external)
      return;
    out.padTo(tensor.newOffset);
    if (tensor.values)
      writeValues(out, tensor);
    else
      copyExternal(out, tensor);
  }

  void copyExternal(OutputFile &out, const Tensor &tensor) const {
    const wire::MappedFile file(
        wire::besideModel(source, tensor.location, tensor.name));
    const int64_t size = file.bytes().size(), wanted = tensor.bytes();
    if (tensor.length.value_or(wanted) != wanted || tensor.offset < 0 ||
        tensor.offset > size || wanted > size - tensor.offset)
      bad("initializer '" + tensor.name + "' lies outside its file " +
          tensor.location);
    out.write(file.bytes().begin + tensor.offset, wanted);
  }

  const std::string source, target;
  const std::map<std::string, NewValues> &values;
  const wire::MappedFile model;
  std::vector<Tensor> tensors, splits;
  std::map<int64_t, Tensor> constants; ///< by node
  /// Node and input to the tensor it reads from now on.
  std::map<int64_t, std::map<int64_t, std::string>> newInputs;
};

} // namespace

void patchOnnx(const std::string &source, const std::string &target,
               const std::map<std::string, NewValues> &values) {
  Patch(source, target, values).run();
}

} // namespace pipec
