//===- FoldedTensors.cpp - weights that no file has as they are -----------===//
#include "compiler/driver/FoldedTensors.h"

#include "compiler/onnx/Import.h"
#include "dialects/nn/NN.h"
#include "support/Failure.h"

#include <cstring>
#include <fstream>

using namespace mlir;

namespace pipec {
namespace {

template <typename From>
void appendFloats(const std::vector<char> &bytes, std::string &out) {
  for (size_t at = 0; at + sizeof(From) <= bytes.size(); at += sizeof(From)) {
    From element;
    std::memcpy(&element, bytes.data() + at, sizeof element);
    const auto value = static_cast<float>(element);
    out.append(reinterpret_cast<const char *>(&value), sizeof value);
  }
}

/// The elements of a parameter as f32, from the f16, bf16 or f64 of its file.
std::string convertedBytes(ModuleOp module, nn::ParameterOp parameter) {
  auto files = module->getAttrOfType<ArrayAttr>("nn.files");
  std::string path = cast<DictionaryAttr>(files[*parameter.getFile()])
                         .getAs<StringAttr>("path")
                         .str();
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(*parameter.getLength());
  file.seekg(static_cast<std::streamoff>(*parameter.getOffset()));
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())))
    throw Failure(Exit::NoInput, "cannot read " + path);
  std::string out;
  Type stored = *parameter.getStored();
  if (stored.isF16())
    appendFloats<_Float16>(bytes, out);
  else if (stored.isBF16())
    appendFloats<__bf16>(bytes, out);
  else
    appendFloats<double>(bytes, out);
  return out;
}

} // namespace

std::map<std::string, std::string> foldedTensors(ModuleOp module) {
  std::map<std::string, std::string> folded;
  for (auto parameter : module.getOps<nn::ParameterOp>()) {
    std::string name = parameter.getSymName().str();
    if (parameter.getStored())
      folded[name] = convertedBytes(module, parameter);
    else if (auto value = parameter.getValue())
      if (auto dense = dyn_cast<DenseElementsAttr>(*value))
        folded[name] = onnx::rawBytes(dense);
  }
  return folded;
}

} // namespace pipec
