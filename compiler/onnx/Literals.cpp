//===- Literals.cpp - tensors of a model as types and literals ------------===//
#include "compiler/onnx/Literals.h"
#include "compiler/onnx/Import.h"
#include "llvm/ADT/APFloat.h"

#include <cstring>

using namespace mlir;

namespace pipec::onnx {

Type elementType(MLIRContext *context, ElementType type) {
  Builder b(context);
  switch (type) {
  case ElementType::Float:
    return b.getF32Type();
  case ElementType::Double:
    return b.getF64Type();
  case ElementType::Float16:
    return b.getF16Type();
  case ElementType::Bfloat16:
    return b.getBF16Type();
  case ElementType::Bool:
    return b.getI1Type();
  case ElementType::Int8:
    return b.getIntegerType(8);
  case ElementType::Int16:
    return b.getIntegerType(16);
  case ElementType::Int32:
    return b.getIntegerType(32);
  case ElementType::Int64:
    return b.getIntegerType(64);
  case ElementType::Uint8:
    return b.getIntegerType(8, /*isSigned=*/false);
  case ElementType::Uint16:
    return b.getIntegerType(16, /*isSigned=*/false);
  case ElementType::Uint32:
    return b.getIntegerType(32, /*isSigned=*/false);
  case ElementType::Uint64:
    return b.getIntegerType(64, /*isSigned=*/false);
  default:
    return {};
  }
}

RankedTensorType tensorType(MLIRContext *context, const TensorData &tensor) {
  const Type element = elementType(context, tensor.type);
  return element ? RankedTensorType::get(tensor.dims, element)
                 : RankedTensorType();
}

/// Elements of width sizeof(From), each through `convert`.
template <typename From, typename To, typename Convert>
static std::vector<To> readAs(std::string_view bytes, Convert convert) {
  std::vector<To> out(bytes.size() / sizeof(From));
  for (size_t i = 0; i < out.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    out[i] = convert(value);
  }
  return out;
}

template <typename From>
static std::vector<int64_t> readInts(std::string_view bytes) {
  return readAs<From, int64_t>(bytes,
                               [](From v) { return static_cast<int64_t>(v); });
}

static std::vector<double> readHalves(std::string_view bytes,
                                      const llvm::fltSemantics &semantics) {
  return readAs<uint16_t, double>(bytes, [&](uint16_t bits) {
    llvm::APFloat v(semantics, llvm::APInt(16, bits));
    bool losesInfo;
    v.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven,
              &losesInfo);
    return v.convertToDouble();
  });
}

nn::Literal readLiteral(MLIRContext *context, const Model &model,
                        const TensorData &tensor) {
  const RankedTensorType type = tensorType(context, tensor);
  const std::string_view bytes = model.wholeOf(tensor);
  const auto toDouble = [](auto v) { return static_cast<double>(v); };
  switch (tensor.type) {
  case ElementType::Float:
    return {type, readAs<float, double>(bytes, toDouble)};
  case ElementType::Double:
    return {type, readAs<double, double>(bytes, toDouble)};
  case ElementType::Float16:
    return {type, readHalves(bytes, llvm::APFloat::IEEEhalf())};
  case ElementType::Bfloat16:
    return {type, readHalves(bytes, llvm::APFloat::BFloat())};
  case ElementType::Bool:
    return {type, readAs<uint8_t, int64_t>(
                      bytes, [](uint8_t v) { return int64_t(v != 0); })};
  case ElementType::Int8:
    return {type, readInts<int8_t>(bytes)};
  case ElementType::Int16:
    return {type, readInts<int16_t>(bytes)};
  case ElementType::Int32:
    return {type, readInts<int32_t>(bytes)};
  case ElementType::Uint8:
    return {type, readInts<uint8_t>(bytes)};
  case ElementType::Uint16:
    return {type, readInts<uint16_t>(bytes)};
  case ElementType::Uint32:
    return {type, readInts<uint32_t>(bytes)};
  default:
    return {type, readInts<int64_t>(bytes)};
  }
}

DenseElementsAttr readAttr(MLIRContext *context, const Model &model,
                           const TensorData &tensor) {
  return readLiteral(context, model, tensor).toAttr();
}

std::string rawBytes(DenseElementsAttr value) {
  const auto type = cast<RankedTensorType>(value.getType());
  if (!type.getElementType().isInteger(1)) {
    const ArrayRef<char> raw = value.getRawData();
    std::string out;
    const int64_t copies = value.isSplat() ? type.getNumElements() : 1;
    for (int64_t i = 0; i < copies; ++i)
      out.append(raw.data(), raw.size());
    return out;
  }
  std::string out;
  for (const bool v : value.getValues<bool>())
    out += static_cast<char>(v);
  return out;
}

} // namespace pipec::onnx
