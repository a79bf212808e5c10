//===- Shape.cpp - evaluation of sources and shape ops --------------------===//
#include "dialects/nn/eval/Kernels.h"

using namespace mlir;

namespace pipec::nn::eval {

static Literal iota(IotaOp op) {
  const RankedTensorType type = resultType(op);
  const int64_t axis = op.getAxis(), n = type.getDimSize(axis);
  const auto line = RankedTensorType::get({n}, type.getElementType());
  Literal values;
  if (holdsFloats(type.getElementType())) {
    std::vector<double> v(n);
    for (int64_t i = 0; i < n; ++i)
      v[i] = roundTo(type.getElementType(), static_cast<double>(i));
    values = Literal(line, std::move(v));
  } else {
    std::vector<int64_t> v(n);
    for (int64_t i = 0; i < n; ++i)
      v[i] = wrapTo(type.getElementType(), i);
    values = Literal(line, std::move(v));
  }
  SmallVector<int64_t> strides(type.getRank(), 0);
  strides[axis] = 1;
  return values.view(type, std::move(strides), 0);
}

static Literal permute(TransposeOp op, const Literal &x) {
  SmallVector<int64_t> strides;
  for (int64_t axis : op.getPermutation())
    strides.push_back(x.getStrides()[axis]);
  return x.view(resultType(op), std::move(strides), x.getOffset());
}

static Literal slice(SliceOp op, const Literal &x) {
  SmallVector<int64_t> strides(x.getStrides());
  int64_t offset = x.getOffset();
  for (size_t d = 0; d < strides.size(); ++d) {
    offset += op.getStarts()[d] * strides[d];
    strides[d] *= op.getStrides()[d];
  }
  return x.view(resultType(op), std::move(strides), offset);
}

static Literal reverse(ReverseOp op, const Literal &x) {
  SmallVector<int64_t> strides(x.getStrides());
  int64_t offset = x.getOffset();
  for (int64_t axis : op.getAxes()) {
    offset += (x.getShape()[axis] - 1) * strides[axis];
    strides[axis] = -strides[axis];
  }
  return x.view(x.getType(), std::move(strides), offset);
}

/// Writes `x` into `out` (row-major, of `shape`) at first + index * step.
template <typename T>
static void place(std::vector<T> &out, ArrayRef<int64_t> shape,
                  const Literal &x, ArrayRef<int64_t> first,
                  ArrayRef<int64_t> step) {
  SmallVector<int64_t> strides = rowMajorStrides(shape);
  int64_t offset = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    offset += first[d] * strides[d];
    strides[d] *= step[d];
  }
  const Literal target = x.view(x.getType(), strides, offset);
  forEachPosition(x.getShape(), {&x, &target}, [&](ArrayRef<int64_t> at) {
    if constexpr (std::is_same_v<T, double>)
      out[at[1]] = x.doubleAt(at[0]);
    else
      out[at[1]] = x.intAt(at[0]);
  });
}

static Literal pad(PadOp op, const Context &c) {
  const RankedTensorType type = resultType(op);
  SmallVector<int64_t> step;
  for (int64_t gap : op.getInterior())
    step.push_back(gap + 1);
  if (c[0].isFloat()) {
    std::vector<double> out(
        type.getNumElements(),
        c.round(type.getElementType(), op.getValue().convertToDouble()));
    place(out, type.getShape(), c[0], op.getLow(), step);
    return Literal(type, std::move(out));
  }
  std::vector<int64_t> out(
      type.getNumElements(),
      static_cast<int64_t>(op.getValue().convertToDouble()));
  place(out, type.getShape(), c[0], op.getLow(), step);
  return Literal(type, std::move(out));
}

static Literal concat(ConcatOp op, const Context &c) {
  const RankedTensorType type = resultType(op);
  const int64_t axis = op.getAxis();
  // A dimension that every input merely repeats is joined once.
  SmallVector<int64_t> shape(type.getShape());
  for (int64_t d = 0; d < type.getRank(); ++d)
    if (d != axis && type.getNumElements() > 0 &&
        llvm::all_of(c.operands,
                     [&](const Literal &x) { return x.getStrides()[d] == 0; }))
      shape[d] = 1;
  const RankedTensorType small = type.clone(shape);
  const SmallVector<int64_t> step(type.getRank(), 1);
  SmallVector<int64_t> first(type.getRank(), 0);
  std::vector<double> floats(c[0].isFloat() ? small.getNumElements() : 0);
  std::vector<int64_t> ints(c[0].isFloat() ? 0 : small.getNumElements());
  for (const Literal &x : c.operands) {
    SmallVector<int64_t> part(shape);
    part[axis] = x.getShape()[axis];
    const Literal piece =
        x.view(x.getType().clone(part), SmallVector<int64_t>(x.getStrides()),
               x.getOffset());
    if (x.isFloat())
      place(floats, shape, piece, first, step);
    else
      place(ints, shape, piece, first, step);
    first[axis] += x.getShape()[axis];
  }
  const Literal out = c[0].isFloat() ? Literal(small, std::move(floats))
                                     : Literal(small, std::move(ints));
  return out.broadcastTo(type.getShape());
}

FailureOr<Results> shape(Operation *op, const Context &c) {
  if (auto constant = dyn_cast<ConstantOp>(op)) {
    auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
    if (!dense) {
      c.why = "the constant is not dense";
      return failure();
    }
    return Results{Literal::fromAttr(dense)};
  }
  if (auto iotaOp = dyn_cast<IotaOp>(op))
    return Results{iota(iotaOp)};
  if (isa<BroadcastOp>(op))
    return Results{c[0].broadcastTo(resultType(op).getShape())};
  if (isa<ReshapeOp>(op))
    return Results{c[0].reshaped(resultType(op).getShape())};
  if (auto transpose = dyn_cast<TransposeOp>(op))
    return Results{permute(transpose, c[0])};
  if (auto sliceOp = dyn_cast<SliceOp>(op))
    return Results{slice(sliceOp, c[0])};
  if (auto reverseOp = dyn_cast<ReverseOp>(op))
    return Results{reverse(reverseOp, c[0])};
  if (auto padOp = dyn_cast<PadOp>(op))
    return Results{pad(padOp, c)};
  if (auto concatOp = dyn_cast<ConcatOp>(op))
    return Results{concat(concatOp, c)};
  return Results{};
}

} // namespace pipec::nn::eval
