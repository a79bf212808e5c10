//===- Indexing.cpp - evaluation of gather, scatter_add, cumsum -----------===//
#include "dialects/nn/eval/Kernels.h"

using namespace mlir;

namespace pipec::nn::eval {

/// The index, counted from the front, or nothing when out of range.
static std::optional<int64_t> wrapIndex(int64_t index, int64_t size) {
  if (index < 0)
    index += size;
  if (index < 0 || index >= size)
    return std::nullopt;
  return index;
}

static double addWrapping(double a, double b) { return a + b; }
static int64_t addWrapping(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) +
                              static_cast<uint64_t>(b));
}

static FailureOr<Results> outOfRange(const Context &c, int64_t index,
                                     int64_t size) {
  c.why = "index " + std::to_string(index) + " is outside of " +
          std::to_string(size) + " elements";
  return failure();
}

static FailureOr<Results> gather(GatherOp op, const Context &c) {
  const Literal &x = c[0], &indices = c[1];
  const RankedTensorType type = resultType(op);
  const int64_t axis = op.getAxis(), size = x.getShape()[axis];
  const int64_t outer = axis, inner = x.getRank() - axis - 1;
  // The result as a view of x for each index: strides of the outer and inner
  // dimensions come from x, those of the index dimensions from `indices`.
  SmallVector<int64_t> shape(type.getShape()), xStrides, iStrides;
  for (int64_t d = 0; d < outer; ++d)
    xStrides.push_back(x.getStrides()[d]), iStrides.push_back(0);
  for (int64_t stride : indices.getStrides())
    xStrides.push_back(0), iStrides.push_back(stride);
  for (int64_t d = 0; d < inner; ++d)
    xStrides.push_back(x.getStrides()[axis + 1 + d]), iStrides.push_back(0);
  if (type.getNumElements() > 0)
    for (size_t d = 0; d < shape.size(); ++d)
      if (xStrides[d] == 0 && iStrides[d] == 0)
        shape[d] = 1;
  const RankedTensorType small = type.clone(shape);
  const Literal from =
      x.view(small, SmallVector<int64_t>(xStrides), x.getOffset());
  const Literal which =
      indices.view(RankedTensorType::get(shape, indices.getElementType()),
                   SmallVector<int64_t>(iStrides), indices.getOffset());
  const int64_t step = x.getStrides()[axis];
  std::vector<double> floats;
  std::vector<int64_t> ints;
  std::optional<int64_t> bad;
  forEachPosition(shape, {&from, &which}, [&](ArrayRef<int64_t> at) {
    const int64_t asked = which.intAt(at[1]);
    const std::optional<int64_t> i = wrapIndex(asked, size);
    if (!i) {
      bad = asked;
      return;
    }
    if (x.isFloat())
      floats.push_back(x.doubleAt(at[0] + *i * step));
    else
      ints.push_back(x.intAt(at[0] + *i * step));
  });
  if (bad)
    return outOfRange(c, *bad, size);
  const Literal out = x.isFloat() ? Literal(small, std::move(floats))
                                  : Literal(small, std::move(ints));
  return Results{out.broadcastTo(type.getShape())};
}

static FailureOr<Results> scatterAdd(ScatterAddOp op, const Context &c) {
  const Literal &indices = c[0], &updates = c[1];
  const RankedTensorType type = resultType(op);
  const int64_t axis = op.getAxis(), size = type.getDimSize(axis);
  const SmallVector<int64_t> strides = rowMajorStrides(type.getShape());
  SmallVector<int64_t> to, iStrides;
  for (int64_t d = 0; d < axis; ++d)
    to.push_back(strides[d]), iStrides.push_back(0);
  for (int64_t stride : indices.getStrides())
    to.push_back(0), iStrides.push_back(stride);
  for (int64_t d = axis + 1; d < type.getRank(); ++d)
    to.push_back(strides[d]), iStrides.push_back(0);
  const Literal target = updates.view(updates.getType(), to, 0);
  const Literal which = indices.view(
      RankedTensorType::get(updates.getShape(), indices.getElementType()),
      iStrides, indices.getOffset());
  std::vector<double> floats(updates.isFloat() ? type.getNumElements() : 0);
  std::vector<int64_t> ints(updates.isFloat() ? 0 : type.getNumElements());
  std::optional<int64_t> bad;
  forEachPosition(
      updates.getShape(), {&updates, &which, &target},
      [&](ArrayRef<int64_t> at) {
        const std::optional<int64_t> i = wrapIndex(which.intAt(at[1]), size);
        if (!i) {
          bad = which.intAt(at[1]);
          return;
        }
        const int64_t place = at[2] + *i * strides[axis];
        if (updates.isFloat())
          floats[place] = c.round(type.getElementType(),
                                  floats[place] + updates.doubleAt(at[0]));
        else
          ints[place] = wrapTo(type.getElementType(),
                               addWrapping(ints[place], updates.intAt(at[0])));
      });
  if (bad)
    return outOfRange(c, *bad, size);
  if (updates.isFloat())
    return Results{Literal(type, std::move(floats))};
  return Results{Literal(type, std::move(ints))};
}

/// The running sum of one line of n elements, `step` apart.
template <typename T, typename Round>
static void cumsumLine(CumsumOp op, std::vector<T> &values, int64_t first,
                       int64_t n, int64_t step, Round round) {
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = first + (op.getReverse() ? n - 1 - i : i) * step;
    const T next = round(addWrapping(sum, values[at]));
    values[at] = op.getExclusive() ? sum : next;
    sum = next;
  }
}

static Results cumsum(CumsumOp op, const Context &c) {
  const Literal &x = c[0];
  const int64_t axis = op.getAxis(), n = x.getShape()[axis];
  SmallVector<int64_t> shape(x.getShape());
  if (x.getNumElements() > 0)
    for (int64_t d = 0; d < x.getRank(); ++d)
      if (d != axis && x.getStrides()[d] == 0)
        shape[d] = 1;
  const RankedTensorType type = x.getType().clone(shape);
  const Literal small =
      x.view(type, SmallVector<int64_t>(x.getStrides()), x.getOffset());
  std::vector<double> floats;
  std::vector<int64_t> ints;
  if (x.isFloat())
    floats = small.doubles();
  else
    ints = small.integers();
  const SmallVector<int64_t> strides = rowMajorStrides(shape);
  SmallVector<int64_t> lines(shape);
  lines[axis] = std::min<int64_t>(n, 1);
  const Literal starts = x.view(type.clone(lines), strides, 0);
  const Type element = type.getElementType();
  forEachPosition(lines, {&starts}, [&](ArrayRef<int64_t> at) {
    if (x.isFloat())
      cumsumLine(op, floats, at[0], n, strides[axis],
                 [&](double v) { return c.round(element, v); });
    else
      cumsumLine(op, ints, at[0], n, strides[axis],
                 [&](int64_t v) { return wrapTo(element, v); });
  });
  const Literal out = x.isFloat() ? Literal(type, std::move(floats))
                                  : Literal(type, std::move(ints));
  return Results{out.broadcastTo(x.getShape())};
}

FailureOr<Results> indexing(Operation *op, const Context &c) {
  if (auto gatherOp = dyn_cast<GatherOp>(op))
    return gather(gatherOp, c);
  if (auto scatter = dyn_cast<ScatterAddOp>(op))
    return scatterAdd(scatter, c);
  if (auto cumsumOp = dyn_cast<CumsumOp>(op))
    return cumsum(cumsumOp, c);
  return Results{};
}

} // namespace pipec::nn::eval
