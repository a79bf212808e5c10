//===- Materialize.cpp - known tensors in the program ---------------------===//
//
// A tensor that is known at import and needed at run time becomes, in this
// order of preference, a constant, a reference to the file, a comparison of
// positions, or a folded parameter.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Emitter.h"

using namespace mlir;

namespace pipec::onnx {

/// A known tensor with more distinct elements becomes an nn.parameter.
static constexpr int64_t kInlineElements = 64;
/// A known mask of at least this size is looked at for a pattern of positions.
static constexpr int64_t kBandElements = int64_t(1) << 20;

Value Emitter::weight(Initializer &source) {
  Value &read = reads[&source];
  if (!read) {
    source.used = true;
    read = nn::WeightOp::create(builder, source.programType(context),
                                FlatSymbolRefAttr::get(context, source.symbol));
    read = nn::cast(builder, read,
                    tensorType(context, *source.data).getElementType());
  }
  return read;
}

std::string Emitter::freshSymbol() {
  std::string symbol = nodeName;
  for (int i = 1; symbol.empty() || !symbols.insert(symbol).second; ++i)
    symbol = nodeName + "." + std::to_string(i);
  return symbol;
}

/// The band that a tensor is, if all but its last two dimensions have size 1
/// and it is one.
std::optional<Emitter::Band> Emitter::findBand(const nn::Literal &literal) {
  const int64_t rank = literal.getRank();
  if (rank < 2)
    return std::nullopt;
  for (int64_t d = 0; d < rank - 2; ++d)
    if (literal.getShape()[d] != 1)
      return std::nullopt;
  const int64_t rows = literal.getShape()[rank - 2],
                columns = literal.getShape()[rank - 1];
  const std::vector<double> m = literal.doubles();
  // The diagonal is inside; the far corners say what is outside.
  Band band;
  band.inside = m[0];
  band.outside =
      m[columns - 1] != m[0] ? m[columns - 1] : m[(rows - 1) * columns];
  const auto differs = [&](double v) { return v != band.inside; };
  if (band.outside == band.inside)
    return std::nullopt;
  while (band.right + 1 < columns && !differs(m[band.right + 1]))
    ++band.right;
  while (band.left + 1 < rows && !differs(m[(band.left + 1) * columns]))
    ++band.left;
  // A band that reaches an edge of the matrix has no limit there.
  if (band.right + 1 == columns)
    band.right = columns + rows;
  if (band.left + 1 == rows)
    band.left = columns + rows;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const bool inside = j - i <= band.right && i - j <= band.left;
      if (m[i * columns + j] != (inside ? band.inside : band.outside))
        return std::nullopt;
    }
  return band;
}

/// A large mask that positions alone decide is computed where it is used:
/// nothing to store, to send or to read.
Value Emitter::makeBand(const Band &band, RankedTensorType type) {
  const int64_t rank = type.getRank();
  const auto index =
      RankedTensorType::get(type.getShape(), IntegerType::get(context, 32));
  nn::NNBuilder &b = builder;
  const Value distance =
      nn::sub(b, nn::iota(b, index, rank - 1), nn::iota(b, index, rank - 2));
  const auto limited = [&](StringRef predicate, int64_t limit) {
    return nn::compare(b, predicate, distance,
                       nn::splatLike(b, distance, static_cast<double>(limit)));
  };
  const int64_t all = type.getDimSize(rank - 1) + type.getDimSize(rank - 2);
  Value inside;
  if (band.right < all)
    inside = limited("le", band.right);
  if (band.left < all) {
    const Value near = limited("ge", -band.left);
    inside = inside ? Value(nn::AndOp::create(b, inside, near)) : near;
  }
  if (type.getElementType().isInteger(1))
    return band.inside != 0 ? inside : Value(nn::NotOp::create(b, inside));
  return nn::select(b, inside, nn::splat(b, type, band.inside),
                    nn::splat(b, type, band.outside));
}

/// A read of the tensor of the file that the literal shows as it is, but for
/// dimensions of size 1: no copy of what is in the file.
Value Emitter::wholeSource(const nn::Literal &literal) {
  const auto source = sources.find(literal.getStorage());
  const int64_t count = literal.getNumElements();
  if (source == sources.end() || count <= kInlineElements ||
      count != source->second->literal.getNumElements() ||
      literal.getOffset() != 0)
    return {};
  const SmallVector<int64_t> strides = nn::rowMajorStrides(literal.getShape());
  for (int64_t d = 0; d < literal.getRank(); ++d)
    if (literal.getShape()[d] != 1 && literal.getStrides()[d] != strides[d])
      return {};
  return weight(*source->second);
}

/// Reads every element.
Emitter::Shown Emitter::decideShown(const nn::Literal &literal) {
  const nn::Literal small = literal.withoutRepetition().compressed();
  Shown shown{small.getType(), std::nullopt, ""};
  if (small.getNumElements() >= kBandElements)
    shown.band = findBand(small);
  if (shown.band)
    return shown;
  const DenseElementsAttr value = small.toAttr();
  std::string &symbol = foldedSymbols[value];
  if (symbol.empty()) {
    symbol = freshSymbol();
    OpBuilder unplaced(context);
    folded.push_back(nn::ParameterOp::create(
        unplaced, location, symbol, small.getType(), "constant", IntegerAttr(),
        IntegerAttr(), IntegerAttr(), TypeAttr(), value,
        StringAttr::get(context, "folded at import")));
  }
  shown.symbol = symbol;
  return shown;
}

const Emitter::Shown &Emitter::shownAs(const nn::Literal &literal) {
  std::deque<View> &known = views[literal.getStorage()];
  if (!known.empty() && known.front().storage.expired())
    known.clear(); // another tensor at the same address
  for (const View &view : known)
    if (view.type == literal.getType() && view.offset == literal.getOffset() &&
        ArrayRef<int64_t>(view.strides) == literal.getStrides())
      return view.shown;
  known.push_back({literal.watchStorage(), literal.getType(),
                   SmallVector<int64_t>(literal.getStrides()),
                   literal.getOffset(), decideShown(literal)});
  return known.back().shown;
}

Value Emitter::materialize(const nn::Literal &literal) {
  if (literal.getNumElements() > 0 && literal.getStoredElements() == 1)
    return nn::ConstantOp::create(builder, literal.toAttr());
  const nn::Literal small = literal.compressed();
  Value base;
  if (Value source = wholeSource(small)) {
    base = nn::reshape(builder, source, small.getShape());
  } else if (small.getNumElements() <= kInlineElements) {
    base = nn::ConstantOp::create(builder, small.toAttr());
  } else {
    const Shown &shown = shownAs(small);
    if (shown.band)
      base = makeBand(*shown.band, shown.type);
    else
      base = nn::WeightOp::create(
          builder, shown.type, FlatSymbolRefAttr::get(context, shown.symbol));
  }
  return nn::broadcast(builder, base, literal.getShape());
}

Value Emitter::value(const Val &v) {
  if (v.value)
    return v.value;
  // A few numbers are worth more in the program than as a parameter.
  if (v.source &&
      (!v.source->folds || v.type.getNumElements() > kInlineElements))
    return weight(*v.source);
  return materialize(literal(v));
}

Val Emitter::modelTensor(const TensorData &tensor) {
  if (tensor.elements() <= kInlineElements)
    return readLiteral(context, model, tensor);
  auto init = std::make_shared<Initializer>();
  init->data = &tensor;
  init->role = Role::Buffer;
  init->reason = "a constant node";
  init->symbol = freshSymbol();
  init->folds = tensor.elements() <= kFoldedTensor;
  embedded.push_back(init);
  return Val(init, tensorType(context, tensor));
}

} // namespace pipec::onnx
