//===- Indexing.cpp - importers of gathers, scatters and masks ------------===//
#include "compiler/onnx/ops/Ops.h"

using namespace mlir;

namespace pipec::onnx {

/// Negative indices counted from the end of `size` elements.
static Val fromFront(Emitter &e, const Val &index, int64_t size) {
  return e.select(e.compare("lt", index, 0),
                  e.add(index, static_cast<double>(size)), index);
}

void importGather(NodeContext &c) {
  const Val &x = c.in(0);
  c.out(c.e.gather(x, c.in(1), c.axis(c.intAttr("axis", 0), x.getRank())));
}

//===----------------------------------------------------------------------===//
// Elements addressed one by one: flat positions
//===----------------------------------------------------------------------===//

/// Flat positions in `x` of elements whose index along `axis` is given and
/// whose other indices are their own.
static Val elementPositions(NodeContext &c, const Val &x, const Val &indices,
                            int64_t axis) {
  Emitter &e = c.e;
  const SmallVector<int64_t> strides = nn::rowMajorStrides(x.getShape());
  const RankedTensorType type = withElement(indices.type, e.i64());
  Val at = e.mul(fromFront(e, e.cast(indices, e.i64()), x.dim(axis)),
                 static_cast<double>(strides[axis]));
  for (int64_t d = 0; d < x.getRank(); ++d)
    if (d != axis)
      at = e.add(at, e.mul(e.iota(type, d), static_cast<double>(strides[d])));
  return at;
}

static void checkSameRank(NodeContext &c, const Val &x, const Val &indices,
                          int64_t axis) {
  bool ok = x.getRank() == indices.getRank() && x.getRank() > 0;
  for (int64_t d = 0; ok && d < x.getRank(); ++d)
    ok = d == axis || indices.dim(d) <= x.dim(d);
  if (!ok)
    c.fail("its indices " + shapeText(indices.getShape()) +
           " do not fit its input " + shapeText(x.getShape()));
}

static Val flat(Emitter &e, const Val &x) {
  return e.reshape(x, {x.type.getNumElements()});
}

void importGatherElements(NodeContext &c) {
  const Val &x = c.in(0), &indices = c.in(1);
  const int64_t axis = c.axis(c.intAttr("axis", 0), x.getRank());
  checkSameRank(c, x, indices, axis);
  c.out(c.e.gather(flat(c.e, x), elementPositions(c, x, indices, axis), 0));
}

namespace {
/// Index tuples over leading dimensions of a tensor.
struct Tuples {
  Val positions;              ///< flat, in the dimensions that tuples address
  int64_t addressed = 1;      ///< how many such positions there are
  SmallVector<int64_t> inner; ///< the remaining dimensions
};
} // namespace

/// Reads the last dimension of `indices` as tuples into x after `batchDims`.
static Tuples readTuples(NodeContext &c, const Val &x, const Val &indices,
                         int64_t batchDims) {
  Emitter &e = c.e;
  const int64_t rank = x.getRank();
  if (indices.getRank() == 0 || indices.isFloat())
    c.fail("its indices are no integer tuples");
  const int64_t length = indices.getShape().back();
  if (batchDims < 0 || batchDims >= indices.getRank() ||
      batchDims + length > rank || length < 1)
    c.fail("its index tuples of length " + std::to_string(length) +
           " do not fit its input " + shapeText(x.getShape()));
  const SmallVector<int64_t> tupleShape(indices.getShape().drop_back());
  for (int64_t d = 0; d < batchDims; ++d)
    if (tupleShape[d] != x.dim(d))
      c.fail("its batch dimensions differ");
  Tuples t;
  t.inner.assign(x.getShape().begin() + batchDims + length, x.getShape().end());
  const SmallVector<int64_t> sizes(x.getShape().take_front(batchDims + length));
  const SmallVector<int64_t> strides = nn::rowMajorStrides(sizes);
  for (const int64_t size : sizes)
    t.addressed *= size;
  const RankedTensorType type = RankedTensorType::get(tupleShape, e.i64());
  t.positions = e.splat(type, 0);
  for (int64_t d = 0; d < batchDims; ++d)
    t.positions = e.add(
        t.positions, e.mul(e.iota(type, d), static_cast<double>(strides[d])));
  for (int64_t i = 0; i < length; ++i) {
    const Val part = e.reshape(
        e.sliceAxis(indices, indices.getRank() - 1, i, 1), tupleShape);
    const Val index = fromFront(e, e.cast(part, e.i64()), sizes[batchDims + i]);
    t.positions = e.add(
        t.positions, e.mul(index, static_cast<double>(strides[batchDims + i])));
  }
  return t;
}

void importGatherND(NodeContext &c) {
  const Val &x = c.in(0);
  const Tuples t = readTuples(c, x, c.in(1), c.intAttr("batch_dims", 0));
  SmallVector<int64_t> shape{t.addressed};
  llvm::append_range(shape, t.inner);
  c.out(c.e.gather(c.e.reshape(x, shape), t.positions, 0));
}

//===----------------------------------------------------------------------===//
// Scatter
//===----------------------------------------------------------------------===//

Val scatterReduce(NodeContext &c, const Val &x, const Val &positions,
                  const Val &updates, const std::string &kind);

/// Writes `updates` into `x` (whose axis 0 the positions address). Without a
/// reduction the positions must be distinct, as ONNX demands: then adding to
/// zeros is writing.
static Val scatterInto(NodeContext &c, const Val &x, const Val &positions,
                       const Val &updates, const std::string &reduction) {
  Emitter &e = c.e;
  if (reduction == "mul" || reduction == "max" || reduction == "min")
    return scatterReduce(c, x, positions, updates, reduction);
  if (reduction != "none" && reduction != "add")
    c.fail("its reduction '" + reduction + "' is unknown");
  const Type element = x.getElementType();
  const bool boolean = element.isInteger(1);
  const Type work =
      boolean ? Type(IntegerType::get(e.getContext(), 32)) : element;
  const Val sum = e.scatterAdd(withElement(x.type, work), positions,
                               e.cast(updates, work), 0);
  if (reduction == "add")
    return e.add(x, e.cast(sum, element));
  // As floats, which every target's kernel adds.
  const Type f32 = Float32Type::get(e.getContext());
  const RankedTensorType counts = RankedTensorType::get({x.dim(0)}, f32);
  const Val hits = e.scatterAdd(
      counts, positions, e.splat(withElement(positions.type, f32), 1), 0);
  SmallVector<int64_t> column(x.getRank(), 1);
  column[0] = x.dim(0);
  const Val written =
      e.broadcast(e.reshape(e.compare("gt", hits, 0), column), x.getShape());
  return e.select(written, e.cast(sum, element), x);
}

void importScatterND(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.in(0), &updates = c.in(2);
  const Tuples t = readTuples(c, x, c.in(1), 0);
  SmallVector<int64_t> expected(t.positions.getShape());
  llvm::append_range(expected, t.inner);
  if (updates.getShape() != ArrayRef(expected))
    c.fail("its updates " + shapeText(updates.getShape()) +
           " are not of shape " + shapeText(expected));
  SmallVector<int64_t> shape{t.addressed};
  llvm::append_range(shape, t.inner);
  c.out(e.reshape(scatterInto(c, e.reshape(x, shape), t.positions, updates,
                              c.stringAttr("reduction", "none")),
                  x.getShape()));
}

void importScatterElements(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.in(0), &indices = c.in(1), &updates = c.in(2);
  const int64_t axis = c.axis(c.intAttr("axis", 0), x.getRank());
  checkSameRank(c, x, indices, axis);
  if (updates.getShape() != indices.getShape())
    c.fail("its updates do not have the shape of its indices");
  const Val positions = elementPositions(c, x, indices, axis);
  c.out(e.reshape(scatterInto(c, flat(e, x), positions, updates,
                              c.stringAttr("reduction", "none")),
                  x.getShape()));
}

/// Writes the update of each sample at its own place along an axis.
void importTensorScatter(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.in(0), &updates = c.in(1);
  const int64_t axis = c.axis(c.intAttr("axis", -2), x.getRank());
  checkSameRank(c, x, updates, axis);
  if (axis == 0 || updates.dim(axis) > x.dim(axis))
    c.fail("its update does not fit its cache");
  Val index = e.iota(RankedTensorType::get(updates.getShape(), e.i64()), axis);
  if (c.has(2)) {
    SmallVector<int64_t> column(x.getRank(), 1);
    column[0] = x.dim(0);
    index = e.add(index, e.reshape(e.cast(c.in(2), e.i64()), column));
  }
  if (c.stringAttr("mode", "linear") == "circular") {
    const Val wrapped = e.add(index, -static_cast<double>(x.dim(axis)));
    index = e.select(e.compare("ge", wrapped, 0), wrapped, index);
  }
  const Val positions = elementPositions(c, x, index, axis);
  c.out(e.reshape(scatterInto(c, flat(e, x), positions, updates, "none"),
                  x.getShape()));
}

/// Reverses the first lengths[b] elements along the time axis of sample b.
void importReverseSequence(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.in(0);
  const int64_t time = c.axis(c.intAttr("time_axis", 0), x.getRank()),
                batch = c.axis(c.intAttr("batch_axis", 1), x.getRank());
  if (time == batch || c.in(1).getShape() != ArrayRef<int64_t>({x.dim(batch)}))
    c.fail("its lengths do not fit its input");
  c.limitLengths(1, x.dim(time));
  SmallVector<int64_t> row(x.getRank(), 1);
  row[batch] = x.dim(batch);
  const RankedTensorType type = RankedTensorType::get(x.getShape(), e.i64());
  const Val lengths =
      e.broadcast(e.reshape(e.cast(c.in(1), e.i64()), row), x.getShape());
  const Val at = e.iota(type, time);
  const Val index =
      e.select(e.compare("lt", at, lengths), e.add(e.sub(lengths, at), -1), at);
  c.out(e.gather(flat(e, x), elementPositions(c, x, index, time), 0));
}

/// Puts each element where the index of MaxPool says, zeros elsewhere. Indices
/// count over the smallest result; a larger one asked for grows at the end.
void importMaxUnpool(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.in(0);
  const auto kernel = c.intsAttr("kernel_shape");
  const int64_t spatial = x.getRank() - 2;
  if (spatial < 1 || !kernel || static_cast<int64_t>(kernel->size()) != spatial)
    c.fail("its kernel_shape does not fit its input");
  const auto pads =
      c.intsAttr("pads").value_or(std::vector<int64_t>(2 * spatial, 0));
  const auto strides =
      c.intsAttr("strides").value_or(std::vector<int64_t>(spatial, 1));
  if (static_cast<int64_t>(pads.size()) != 2 * spatial ||
      static_cast<int64_t>(strides.size()) != spatial)
    c.fail("its pads or strides do not fit its input");
  SmallVector<int64_t> natural{x.dim(0), x.dim(1)};
  for (int64_t i = 0; i < spatial; ++i)
    natural.push_back((x.dim(i + 2) - 1) * strides[i] + (*kernel)[i] - pads[i] -
                      pads[spatial + i]);
  int64_t count = 1;
  for (const int64_t size : natural)
    if (size < 1 || __builtin_mul_overflow(count, size, &count) ||
        count > (int64_t(1) << 40))
      c.fail("its output shape " + shapeText(natural) + " is impossible");
  const Val sum =
      e.scatterAdd(RankedTensorType::get({count}, x.getElementType()),
                   flat(e, c.in(1)), flat(e, x), 0);
  Val y = e.reshape(sum, natural);
  if (c.has(2)) {
    const std::vector<int64_t> asked = c.ints(2, "output_shape");
    SmallVector<int64_t> none(x.getRank(), 0), grow;
    for (size_t i = 0; i < asked.size() && i < natural.size(); ++i)
      grow.push_back(asked[i] - natural[i]);
    if (asked.size() != natural.size() ||
        llvm::any_of(grow, [](int64_t n) { return n < 0 || n > (1 << 20); }))
      c.fail("its output shape " + shapeText(asked) + " is smaller than " +
             shapeText(natural));
    y = e.pad(y, none, grow, none, 0);
  }
  c.out(y);
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

/// values[1] where the index of the new axis is the one asked for, else
/// values[0]. Indices outside of [-depth, depth) match nowhere.
void importOneHot(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.in(0), &values = c.in(2);
  const double given = c.scalar(1, "depth");
  if (!(given >= 1 && given <= 1e9) || values.type.getNumElements() != 2)
    c.fail("it needs a positive depth and two values");
  const auto depth = static_cast<int64_t>(given);
  const int64_t axis = c.axis(c.intAttr("axis", -1), x.getRank() + 1);
  SmallVector<int64_t> thin(x.getShape()), shape(x.getShape());
  thin.insert(thin.begin() + axis, 1);
  shape.insert(shape.begin() + axis, depth);
  const Val index = fromFront(e, e.cast(x, e.i64()), depth);
  const Val hot =
      e.compare("eq", e.reshape(index, thin),
                e.iota(RankedTensorType::get(shape, e.i64()), axis));
  const auto valueAt = [&](int64_t i) {
    return e.broadcast(e.sliceAxis(e.reshape(values, {2}), 0, i, 1), shape);
  };
  c.out(e.select(hot, valueAt(1), valueAt(0)));
}

/// Keeps j - i >= k (upper) or j - i <= k (lower).
void importTrilu(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.in(0);
  if (x.getRank() < 2)
    c.fail("its input is no matrix");
  const int64_t k = c.has(1) ? c.scalarInt(1, "diagonal") : 0;
  const bool upper = c.intAttr("upper", 1) != 0;
  const RankedTensorType type =
      RankedTensorType::get(x.getShape().take_back(2), e.i64());
  const Val distance = e.sub(e.iota(type, 1), e.iota(type, 0));
  const Val keep = e.compare(upper ? "ge" : "le", distance,
                             e.splatLike(distance, double(k)));
  c.out(e.select(keep, x, e.splatLike(x, 0)));
}

/// Indices of nonzero elements: their number must be known at compile time.
void importNonZero(NodeContext &c) {
  const nn::Literal x = c.known(0, "input");
  const std::vector<double> values = x.doubles();
  const int64_t rank = std::max<int64_t>(1, x.getRank());
  const SmallVector<int64_t> strides = nn::rowMajorStrides(x.getShape());
  std::vector<std::vector<int64_t>> columns(rank);
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] != 0)
      for (int64_t d = 0; d < rank; ++d)
        columns[d].push_back(x.getRank() == 0
                                 ? 0
                                 : static_cast<int64_t>(i) / strides[d] %
                                       x.getShape()[d]);
  std::vector<int64_t> all;
  for (const auto &column : columns)
    all.insert(all.end(), column.begin(), column.end());
  const auto count = static_cast<int64_t>(columns[0].size());
  c.out(nn::Literal(RankedTensorType::get({rank, count}, c.e.i64()),
                    std::move(all)));
}

/// Keeps the slices whose condition, known at compile time, is true.
void importCompress(NodeContext &c) {
  const bool flattens = !c.attribute("axis");
  const Val x = flattens ? flat(c.e, c.in(0)) : c.in(0);
  const int64_t axis = flattens ? 0 : c.axis(c.intAttr("axis"), x.getRank());
  const std::vector<int64_t> condition = c.ints(1, "condition");
  std::vector<int64_t> kept;
  for (size_t i = 0; i < condition.size(); ++i)
    if (condition[i] && static_cast<int64_t>(i) < x.dim(axis))
      kept.push_back(static_cast<int64_t>(i));
  c.out(c.e.gather(x, c.e.ints(kept), axis));
}

} // namespace pipec::onnx
