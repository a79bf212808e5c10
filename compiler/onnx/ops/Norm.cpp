//===- Norm.cpp - importers of normalizations -----------------------------===//
#include "compiler/onnx/ops/Ops.h"

#include <numeric>

using namespace mlir;

namespace pipec::onnx {

/// [1, c, 1, ...] of a tensor of one element a channel.
static Val perChannel(NodeContext &c, const Val &v, const Val &x) {
  SmallVector<int64_t> shape(x.getRank(), 1);
  shape[1] = x.dim(1);
  return c.e.reshape(v, shape);
}

/// A tensor [n, c, ...].
static const Val &channelled(NodeContext &c) {
  const Val &x = c.floatIn(0);
  if (x.getRank() < 2)
    c.fail("its input of shape " + shapeText(x.getShape()) +
           " has no channel dimension");
  return x;
}

namespace {
struct Statistics {
  Val mean, centered, variance; ///< biased; reduced axes have size 1
};
} // namespace

static Statistics statistics(Emitter &e, const Val &x, ArrayRef<int64_t> axes) {
  Statistics s;
  s.mean = e.mean(x, axes);
  s.centered = e.sub(x, s.mean);
  s.variance = e.mean(e.mul(s.centered, s.centered), axes);
  return s;
}

/// 1 / sqrt(variance + epsilon)
static Val inverseDeviation(NodeContext &c, const Val &variance) {
  return c.e.unary<nn::RsqrtOp>(
      c.e.add(variance, c.floatAttr("epsilon", 1e-5f)));
}

static int64_t elementsAlong(const Val &x, ArrayRef<int64_t> axes) {
  int64_t n = 1;
  for (const int64_t axis : axes)
    n *= x.dim(axis);
  return n;
}

/// Normalizes over `axes` in float32 at least, and gives back x's type.
static Val normalized(NodeContext &c, const Val &x, ArrayRef<int64_t> axes,
                      Statistics *seen = nullptr) {
  Emitter &e = c.e;
  const Type element = x.getElementType();
  const bool narrow = element.getIntOrFloatBitWidth() < 32;
  const Val wide = narrow ? e.cast(x, Float32Type::get(e.getContext())) : x;
  const Statistics s = statistics(e, wide, axes);
  if (seen)
    *seen = s;
  return e.cast(e.mul(s.centered, inverseDeviation(c, s.variance)), element);
}

//===----------------------------------------------------------------------===//
// Batch normalization
//===----------------------------------------------------------------------===//

static void inferenceBatchNorm(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = channelled(c);
  const Val scale =
      e.mul(e.cast(c.in(1), x.getElementType()),
            inverseDeviation(c, e.cast(c.in(4), x.getElementType())));
  const Val centered =
      e.sub(x, perChannel(c, e.cast(c.in(3), x.getElementType()), x));
  c.out(0, e.add(e.mul(centered, perChannel(c, scale, x)),
                 perChannel(c, e.cast(c.in(2), x.getElementType()), x)));
  // A file in training form that only infers: the averages stay what they are.
  for (size_t i = 1; i <= 4; ++i)
    if (c.wants(i))
      c.out(i, c.in(i % 2 ? 3 : 4));
}

/// Batch statistics, and running averages as PyTorch keeps them: the variance
/// unbiased, once a microbatch.
static void trainingBatchNorm(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = channelled(c);
  SmallVector<int64_t> axes{0};
  for (int64_t i = 2; i < x.getRank(); ++i)
    axes.push_back(i);
  const int64_t count = elementsAlong(x, axes);
  const bool learns = !c.options.forwardOnly;
  if (learns && count < 2)
    c.fail("it has one value a channel to take statistics of",
           "use a larger microbatch, or --bn inference");
  Statistics s;
  const Val y = normalized(c, x, axes, &s);
  c.out(0,
        e.add(e.mul(y, perChannel(c, e.cast(c.in(1), x.getElementType()), x)),
              perChannel(c, e.cast(c.in(2), x.getElementType()), x)));
  const double momentum = c.floatAttr("momentum", 0.9f);
  const auto flat = [&](const Val &v) { return e.reshape(v, {x.dim(1)}); };
  if (learns) {
    const double unbias =
        static_cast<double>(count) / static_cast<double>(count - 1);
    for (const auto &[index, value] :
         {std::pair(3, flat(s.mean)),
          std::pair(4, e.mul(flat(s.variance), unbias))})
      if (const Val &running = c.in(index); running.source)
        e.track(e.cast(value, running.getElementType()), running, 1 - momentum);
  }
  // Outputs of the training form, as ONNX has them; older opsets have the batch
  // statistics once more behind them.
  for (const auto &[index, value] :
       {std::pair(1, flat(s.mean)), std::pair(2, flat(s.variance))})
    if (c.wants(index)) {
      const Val &running = c.in(static_cast<size_t>(index) + 2);
      const Val now = e.cast(value, running.getElementType());
      c.out(index, e.add(e.mul(running, momentum), e.mul(now, 1 - momentum)));
      c.out(static_cast<size_t>(index) + 2, now);
    }
}

/// An export in training form says training_mode wherever it is run. Inference
/// has running averages to take, unless the graph computes or is given them.
static bool takesBatchStatistics(NodeContext &c) {
  const BatchNorm asked = c.options.batchNorm;
  // Before opset 14 the number of outputs says it.
  const bool written =
      c.intAttr("training_mode", 0) != 0 || (c.opset < 14 && c.wants(1));
  if (!c.options.forwardOnly) {
    if (written && asked != BatchNorm::Inference)
      c.note("the file has batch norms in training form: they train, and "
             "--evaluate takes their running averages, as PyTorch's eval() "
             "does");
    return asked != BatchNorm::Inference;
  }
  if (!written || asked != BatchNorm::Auto)
    return written && asked == BatchNorm::Written;
  const bool averages = c.in(3).source && c.in(4).source;
  if (averages)
    c.note("the file has batch norms in training form: inference takes their "
           "running averages, as PyTorch's eval() does; --bn train takes the "
           "statistics of each microbatch");
  return !averages;
}

void importBatchNormalization(NodeContext &c) {
  const Val &x = channelled(c);
  for (size_t i = 1; i <= 4; ++i)
    if (c.floatIn(i).getShape() != ArrayRef<int64_t>({x.dim(1)}))
      c.fail("its input " + std::to_string(i) + " has the shape " +
             shapeText(c.in(i).getShape()) + " for " +
             std::to_string(x.dim(1)) + " channels");
  if (takesBatchStatistics(c))
    trainingBatchNorm(c);
  else
    inferenceBatchNorm(c);
}

//===----------------------------------------------------------------------===//
// Layer, group, instance
//===----------------------------------------------------------------------===//

static SmallVector<int64_t> axesFrom(int64_t first, int64_t rank) {
  return llvm::to_vector(llvm::seq<int64_t>(first, rank));
}

void importLayerNormalization(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.floatIn(0);
  const int64_t axis = c.axis(c.intAttr("axis", -1), x.getRank());
  Statistics s;
  Val y = normalized(c, x, axesFrom(axis, x.getRank()), &s);
  y = e.mul(y, e.broadcast(c.in(1), x.getShape()));
  if (c.has(2))
    y = e.add(y, e.broadcast(c.in(2), x.getShape()));
  c.out(0, y);
  c.out(1, s.mean);
  if (c.wants(2))
    c.out(2, inverseDeviation(c, s.variance));
}

/// x / sqrt(mean(x^2) + epsilon) * scale
void importRMSNormalization(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.floatIn(0);
  const int64_t axis = c.axis(c.intAttr("axis", -1), x.getRank());
  const bool narrow = x.getElementType().getIntOrFloatBitWidth() < 32;
  const Val wide = narrow ? e.cast(x, Float32Type::get(e.getContext())) : x;
  const Val square = e.mean(e.mul(wide, wide), axesFrom(axis, x.getRank()));
  const Val y =
      e.cast(e.mul(wide, inverseDeviation(c, square)), x.getElementType());
  c.out(
      e.mul(y, e.broadcast(e.cast(c.in(1), x.getElementType()), x.getShape())));
}

void importInstanceNormalization(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = channelled(c);
  const Val y = normalized(c, x, axesFrom(2, x.getRank()));
  c.out(e.add(e.mul(y, perChannel(c, c.in(1), x)), perChannel(c, c.in(2), x)));
}

/// Statistics over the channels of a group; the scale is one a channel (opset
/// 21) or one a group (before).
void importGroupNormalization(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = channelled(c);
  const int64_t groups = c.intAttr("num_groups"), channels = x.dim(1);
  if (groups < 1 || channels % groups != 0)
    c.fail("its " + std::to_string(channels) + " channels do not divide into " +
           std::to_string(groups) + " groups");
  int64_t plane = 1;
  for (const int64_t size : x.getShape().drop_front(2))
    plane *= size;
  const int64_t each = channels / groups;
  const Val grouped = e.reshape(x, {x.dim(0), groups, each * plane});
  const Val y = e.reshape(normalized(c, grouped, {2}), x.getShape());
  const auto scaleOf = [&](const Val &v) {
    if (v.getRank() == 1 && v.dim(0) == groups && groups != channels)
      return perChannel(
          c,
          e.reshape(e.broadcast(e.reshape(v, {groups, 1}), {groups, each}),
                    {channels}),
          x);
    return perChannel(c, v, x);
  };
  c.out(e.add(e.mul(y, scaleOf(c.in(1))), scaleOf(c.in(2))));
}

//===----------------------------------------------------------------------===//
// Others
//===----------------------------------------------------------------------===//

/// x / (bias + alpha / size * sum of squares over `size` channels)^beta
void importLRN(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = channelled(c);
  const int64_t size = c.intAttr("size");
  if (size < 1 || size > 4096)
    c.fail("its size is " + std::to_string(size));
  const int64_t before = (size - 1) / 2, after = size - 1 - before;
  SmallVector<int64_t> low(x.getRank(), 0), high(x.getRank(), 0),
      none(x.getRank(), 0);
  low[1] = before;
  high[1] = after;
  const Val squares = e.pad(e.mul(x, x), low, high, none, 0);
  Val sum = e.sliceAxis(squares, 1, 0, x.dim(1));
  for (int64_t i = 1; i < size; ++i)
    sum = e.add(sum, e.sliceAxis(squares, 1, i, x.dim(1)));
  const Val base =
      e.add(e.mul(sum, c.floatAttr("alpha", 1e-4f) / static_cast<double>(size)),
            c.floatAttr("bias", 1));
  c.out(e.mul(x, e.binary<nn::PowOp>(
                     base, e.splatLike(base, -c.floatAttr("beta", 0.75f)))));
}

/// x divided by its norm along an axis; zero vectors stay zero.
void importLpNormalization(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.floatIn(0);
  const int64_t axis = c.axis(c.intAttr("axis", -1), x.getRank());
  const int64_t p = c.intAttr("p", 2);
  if (p != 1 && p != 2)
    c.fail("its norm p=" + std::to_string(p) + " is neither 1 nor 2");
  const Val sum =
      e.reduce("sum", p == 1 ? e.unary<nn::AbsOp>(x) : e.mul(x, x), {axis});
  const Val isZero = e.compare("eq", sum, 0);
  // The root of zero has no gradient; such a vector is divided by one.
  const Val safe = e.select(isZero, e.splatLike(sum, 1), sum);
  c.out(e.div(x, p == 1 ? safe : e.unary<nn::SqrtOp>(safe)));
}

/// (x - mean) / (sqrt(E[x^2] - mean^2) + 1e-9)
void importMeanVarianceNormalization(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.floatIn(0);
  const auto axes = c.axes(
      c.intsAttr("axes").value_or(std::vector<int64_t>{0, 2, 3}), x.getRank());
  const Statistics s = statistics(e, x, axes);
  c.out(e.div(s.centered, e.add(e.unary<nn::SqrtOp>(s.variance), 1e-9)));
}

} // namespace pipec::onnx
