//===- OnnxPatch.cpp - new weights for an ONNX file -----------------------===//
#include "runtime/OnnxPatch.h"
#include "runtime/OnnxTensor.h"
#include "runtime/WireFormat.h"
#include "support/Failure.h"
#include "support/OutputFile.h"

#include <algorithm>
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
};

/// An initializer, and what becomes of it.
struct Tensor : OnnxTensor {
  const NewValues *values = nullptr; ///< to be written, or null
  int64_t newOffset = 0;             ///< in the new data file

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
        Tensor tensor{readOnnxTensor(inner.payload, source)};
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
            found = Tensor{readOnnxTensor(part.payload, source)};
        });
    });
    if (found)
      found->name = output;
    return found;
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

  std::string head(const Tensor &tensor) const {
    if (!tensor.external)
      return headOf(tensor, source, std::nullopt);
    const size_t slash = target.rfind('/');
    const std::string name =
        slash == std::string::npos ? target : target.substr(slash + 1);
    return headOf(tensor, source, OnnxPlace{name + ".data", tensor.newOffset});
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
      convertFloats(data, bytes, *tensor.type, converted);
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
