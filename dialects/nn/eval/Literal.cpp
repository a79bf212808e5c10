//===- Literal.cpp - a tensor value known now -----------------------------===//
#include "dialects/nn/eval/Literal.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace pipec::nn {

SmallVector<int64_t> rowMajorStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

double roundTo(Type element, double value) {
  if (element.isF64())
    return value;
  if (element.isF32())
    return static_cast<float>(value);
  llvm::APFloat v(value);
  bool losesInfo;
  v.convert(cast<FloatType>(element).getFloatSemantics(),
            llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  v.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven,
            &losesInfo);
  return v.convertToDouble();
}

int64_t wrapTo(Type element, int64_t value) {
  unsigned width = element.getIntOrFloatBitWidth();
  if (width == 1)
    return value & 1;
  if (width == 64)
    return value;
  const int64_t low =
      static_cast<int64_t>(static_cast<uint64_t>(value) << (64 - width));
  if (element.isUnsignedInteger())
    return static_cast<int64_t>(static_cast<uint64_t>(low) >> (64 - width));
  return low >> (64 - width);
}

Literal::Literal(RankedTensorType type, std::vector<double> elements)
    : type(type), strides(rowMajorStrides(type.getShape())) {
  auto b = std::make_shared<Buffer>();
  b->floats = std::move(elements);
  buffer = std::move(b);
}

Literal::Literal(RankedTensorType type, std::vector<int64_t> elements)
    : type(type), strides(rowMajorStrides(type.getShape())) {
  auto b = std::make_shared<Buffer>();
  b->ints = std::move(elements);
  buffer = std::move(b);
}

Literal Literal::splat(RankedTensorType type, double value) {
  Literal one(RankedTensorType::get({}, type.getElementType()),
              std::vector<double>{roundTo(type.getElementType(), value)});
  return one.view(type, SmallVector<int64_t>(type.getRank(), 0), 0);
}

Literal Literal::splatInt(RankedTensorType type, int64_t value) {
  Literal one(RankedTensorType::get({}, type.getElementType()),
              std::vector<int64_t>{wrapTo(type.getElementType(), value)});
  return one.view(type, SmallVector<int64_t>(type.getRank(), 0), 0);
}

Literal Literal::ints(MLIRContext *context, ArrayRef<int64_t> values) {
  auto type = RankedTensorType::get({static_cast<int64_t>(values.size())},
                                    IntegerType::get(context, 64));
  return Literal(type, std::vector<int64_t>(values.begin(), values.end()));
}

Literal Literal::scalarInt(MLIRContext *context, int64_t value) {
  auto type = RankedTensorType::get({}, IntegerType::get(context, 64));
  return Literal(type, std::vector<int64_t>{value});
}

Literal Literal::fromAttr(DenseElementsAttr attr) {
  auto type = cast<RankedTensorType>(attr.getType());
  Type element = type.getElementType();
  if (attr.isSplat() && type.getNumElements() > 0) {
    if (holdsFloats(element))
      return splat(
          type, attr.getSplatValue<FloatAttr>().getValue().convertToDouble());
    APInt v = attr.getSplatValue<APInt>();
    return splatInt(type, element.isUnsignedInteger()
                              ? static_cast<int64_t>(v.getZExtValue())
                              : v.getSExtValue());
  }
  if (holdsFloats(element)) {
    std::vector<double> values;
    values.reserve(type.getNumElements());
    for (APFloat v : attr.getValues<APFloat>()) {
      bool losesInfo;
      v.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven,
                &losesInfo);
      values.push_back(v.convertToDouble());
    }
    return Literal(type, std::move(values));
  }
  std::vector<int64_t> values;
  values.reserve(type.getNumElements());
  const bool zeroExtend = element.isUnsignedInteger() || element.isInteger(1);
  for (const APInt &v : attr.getValues<APInt>())
    values.push_back(zeroExtend ? static_cast<int64_t>(v.getZExtValue())
                                : v.getSExtValue());
  return Literal(type, std::move(values));
}

int64_t Literal::getStoredElements() const {
  int64_t n = 1;
  for (auto [size, stride] : llvm::zip(getShape(), strides))
    if (stride != 0)
      n *= size;
  return n;
}

Literal Literal::view(RankedTensorType newType, SmallVector<int64_t> newStrides,
                      int64_t newOffset) const {
  Literal out;
  out.type = newType;
  out.buffer = buffer;
  out.strides = std::move(newStrides);
  out.offset = newOffset;
  return out;
}

/// Strides that show `from` (with `strides`) in another shape, if there are
/// any.
static std::optional<SmallVector<int64_t>>
stridesAfterReshape(ArrayRef<int64_t> from, ArrayRef<int64_t> strides,
                    ArrayRef<int64_t> to) {
  SmallVector<int64_t> sizes, steps, out(to.size(), 0);
  for (auto [size, stride] : llvm::zip(from, strides))
    if (size != 1) {
      sizes.push_back(size);
      steps.push_back(stride);
    }
  size_t oldAt = 0, newAt = 0;
  while (oldAt < sizes.size() && newAt < to.size()) {
    // The smallest groups of dimensions on both sides with the same product.
    size_t oldEnd = oldAt + 1, newEnd = newAt + 1;
    int64_t oldCount = sizes[oldAt], newCount = to[newAt];
    while (oldCount != newCount) {
      if (newCount < oldCount) {
        if (newEnd == to.size())
          return std::nullopt;
        newCount *= to[newEnd++];
      } else {
        if (oldEnd == sizes.size())
          return std::nullopt;
        oldCount *= sizes[oldEnd++];
      }
    }
    for (size_t i = oldAt; i + 1 < oldEnd; ++i)
      if (steps[i] != steps[i + 1] * sizes[i + 1])
        return std::nullopt;
    int64_t step = steps[oldEnd - 1];
    for (size_t i = newEnd; i-- > newAt;) {
      out[i] = to[i] == 1 ? 0 : step;
      step *= to[i];
    }
    oldAt = oldEnd;
    newAt = newEnd;
  }
  return out;
}

Literal Literal::reshaped(ArrayRef<int64_t> shape) const {
  auto newType = type.clone(shape);
  if (getNumElements() == 0)
    return view(newType, rowMajorStrides(shape), 0);
  if (auto s = stridesAfterReshape(getShape(), strides, shape))
    return view(newType, std::move(*s), offset);
  if (isFloat())
    return Literal(newType, doubles());
  return Literal(newType, integers());
}

bool Literal::canReshapeAsView(ArrayRef<int64_t> shape) const {
  return getNumElements() == 0 ||
         stridesAfterReshape(getShape(), strides, shape).has_value();
}

Literal Literal::broadcastTo(ArrayRef<int64_t> shape) const {
  SmallVector<int64_t> s(strides);
  for (size_t i = 0; i < shape.size(); ++i)
    if (getShape()[i] == 1 && shape[i] != 1)
      s[i] = 0;
  return view(type.clone(shape), std::move(s), offset);
}

Literal Literal::compressed() const {
  if (getNumElements() == 0)
    return *this;
  SmallVector<int64_t> shape(getShape());
  for (auto [size, stride] : llvm::zip(shape, strides))
    if (stride == 0)
      size = 1;
  return view(type.clone(shape), strides, offset);
}

/// Whether all elements along a dimension equal the first. `line` shows the
/// elements, `same` the first of each line instead.
template <typename T>
static bool repeats(const std::vector<T> &elements, const Literal &line,
                    const Literal &same, int64_t dimension) {
  // Most tensors differ on the line through the first element or the last.
  const int64_t step = line.getStrides()[dimension];
  int64_t far = line.getOffset();
  for (auto [size, stride] : llvm::zip(line.getShape(), same.getStrides()))
    far += (size - 1) * stride;
  for (const int64_t begin : {line.getOffset(), far})
    for (int64_t i = 1; i < line.getShape()[dimension]; ++i)
      if (elements[begin] != elements[begin + i * step])
        return false;
  bool equal = true;
  forEachPosition(line.getShape(), {&line, &same}, [&](ArrayRef<int64_t> at) {
    equal &= elements[at[0]] == elements[at[1]];
  });
  return equal;
}

Literal Literal::withoutRepetition() const {
  if (getNumElements() == 0)
    return *this;
  Literal out = *this;
  const bool floats = isFloat();
  for (int64_t d = 0; d < getRank(); ++d) {
    if (getShape()[d] == 1 || out.strides[d] == 0)
      continue;
    Literal line = out.compressed(), same = line;
    same.strides[d] = 0;
    if (floats ? repeats(buffer->floats, line, same, d)
               : repeats(buffer->ints, line, same, d))
      out.strides[d] = 0;
  }
  return out;
}

/// All elements as To, in row-major order.
template <typename To, typename From>
static std::vector<To> inOrder(const Literal &literal,
                               const std::vector<From> &elements) {
  std::vector<To> out;
  out.reserve(literal.getNumElements());
  forEachPosition(literal.getShape(), {&literal}, [&](ArrayRef<int64_t> at) {
    out.push_back(static_cast<To>(elements[at[0]]));
  });
  return out;
}

std::vector<double> Literal::doubles() const {
  return isFloat() ? inOrder<double>(*this, buffer->floats)
                   : inOrder<double>(*this, buffer->ints);
}

std::vector<int64_t> Literal::integers() const {
  return isFloat() ? inOrder<int64_t>(*this, buffer->floats)
                   : inOrder<int64_t>(*this, buffer->ints);
}

DenseElementsAttr Literal::toAttr() const {
  const bool isSplat = getNumElements() > 0 && getStoredElements() == 1;
  const RankedTensorType shown =
      isSplat ? RankedTensorType::get({}, getElementType()) : type;
  const Literal source = isSplat ? view(shown, {}, offset) : *this;
  if (isFloat()) {
    auto element = cast<FloatType>(getElementType());
    if (element.isF32()) {
      std::vector<float> values;
      for (double v : source.doubles())
        values.push_back(static_cast<float>(v));
      return DenseElementsAttr::get(type, ArrayRef<float>(values));
    }
    SmallVector<APFloat> values;
    for (double d : source.doubles()) {
      APFloat v(d);
      bool losesInfo;
      v.convert(element.getFloatSemantics(), APFloat::rmNearestTiesToEven,
                &losesInfo);
      values.push_back(v);
    }
    return DenseElementsAttr::get(type, values);
  }
  const unsigned width = getElementType().getIntOrFloatBitWidth();
  SmallVector<APInt> values;
  for (int64_t v : source.integers())
    values.push_back(APInt(width, static_cast<uint64_t>(v), /*isSigned=*/false,
                           /*implicitTrunc=*/true));
  return DenseElementsAttr::get(type, values);
}

} // namespace pipec::nn
