//===- OddWeights.cpp - weights that are no numbers -----------------------===//
#include "compiler/driver/OddWeights.h"

#include "compiler/driver/PlanBuilder.h"
#include "compiler/onnx/Import.h"
#include "dialects/nn/NN.h"
#include "report/Facts.h"
#include "runtime/data/NotANumber.h"

#include <algorithm>
#include <fstream>
#include <vector>

using namespace mlir;

namespace pipec {
namespace {

/// Pieces of the parameter's bytes, one after another, until `f` says that it
/// has seen enough.
void forEachPiece(ModuleOp module, nn::ParameterOp parameter,
                  llvm::function_ref<bool(const char *, int64_t)> f) {
  if (auto value = parameter.getValue()) {
    if (auto dense = dyn_cast<DenseElementsAttr>(*value)) {
      const std::string bytes = onnx::rawBytes(dense);
      f(bytes.data(), static_cast<int64_t>(bytes.size()));
    }
    return;
  }
  constexpr int64_t kPiece = 1 << 20; // of whole elements
  auto files = module->getAttrOfType<ArrayAttr>("nn.files");
  auto of = cast<DictionaryAttr>(files[*parameter.getFile()]);
  std::ifstream file(of.getAs<StringAttr>("path").str(), std::ios::binary);
  file.seekg(static_cast<std::streamoff>(*parameter.getOffset()));
  std::vector<char> piece(kPiece);
  const auto length = static_cast<int64_t>(*parameter.getLength());
  for (int64_t at = 0; at < length; at += kPiece) {
    const int64_t bytes = std::min(kPiece, length - at);
    // A file that changes meanwhile is found out by its digest.
    if (!file.read(piece.data(), bytes) || f(piece.data(), bytes))
      return;
  }
}

/// "[1, 2]": where the element of this number is.
std::string placeOf(RankedTensorType type, int64_t element) {
  std::vector<int64_t> place(type.getRank());
  for (size_t axis = place.size(); axis-- > 0;) {
    place[axis] = element % type.getDimSize(axis);
    element /= type.getDimSize(axis);
  }
  return report::shapeText(place);
}

/// What is wrong with a parameter, or "".
std::string oddIn(ModuleOp module, nn::ParameterOp parameter) {
  const RankedTensorType type = parameter.getTensorType();
  const Type stored = parameter.getStored().value_or(type.getElementType());
  if (!stored.isF32() && !stored.isF64() && !stored.isF16() && !stored.isBF16())
    return "";
  const std::string dtype = typeName(stored);
  const int64_t width = stored.getIntOrFloatBitWidth() / 8;
  const bool learns = parameter.getRole() != "frozen";
  int64_t before = 0;
  std::string odd;
  forEachPiece(module, parameter, [&](const char *data, int64_t bytes) {
    const int64_t nan = firstNan(dtype, data, bytes / width);
    const int64_t infinite =
        learns ? firstInfinity(dtype, data, bytes / width) : -1;
    if (nan >= 0 || infinite >= 0)
      odd = "weight '" + parameter.getSymName().str() + "' " +
            (nan >= 0 ? "holds NaN" : "is infinite") + ", first at " +
            placeOf(type, before + (nan >= 0 ? nan : infinite));
    before += bytes / width;
    return !odd.empty();
  });
  return odd;
}

} // namespace

std::string oddWeight(ModuleOp module) {
  for (auto parameter : module.getOps<nn::ParameterOp>())
    if (std::string odd = oddIn(module, parameter); !odd.empty())
      return odd;
  return "";
}

} // namespace pipec
