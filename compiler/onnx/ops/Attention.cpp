//===- Attention.cpp - importers of attention operators -------------------===//
#include "compiler/onnx/ops/Ops.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace pipec::onnx {

namespace {

/// One Attention node: [batch, heads, length, size] throughout.
class AttentionNode {
public:
  AttentionNode(NodeContext &c) : c(c), e(c.e) {}
  void run();

private:
  Val heads(const Val &x, const char *attribute);
  Val repeatHeads(const Val &x, int64_t times);
  Val maskInput();
  Val positionMask();
  Val lessThanLength(const Val &lengths);
  void combine(const Val &mask);
  Val maskedSoftmax(Val scores);

  NodeContext &c;
  Emitter &e;
  Val q, k, v, bias; ///< bias: added to the scores, -inf where masked
  int64_t past = 0;  ///< keys that precede this block
};

} // namespace

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// [batch, length, heads * size] to [batch, heads, length, size].
Val AttentionNode::heads(const Val &x, const char *attribute) {
  if (x.getRank() == 4)
    return x;
  if (x.getRank() != 3)
    c.fail("its operand " + shapeText(x.getShape()) +
           " is neither 3-D nor 4-D");
  const int64_t count = c.intAttr(attribute);
  if (count < 1 || x.dim(2) % count != 0)
    c.fail("its operand " + shapeText(x.getShape()) + " does not divide into " +
           std::to_string(count) + " heads");
  return e.transpose(
      e.reshape(x, {x.dim(0), x.dim(1), count, x.dim(2) / count}),
      {0, 2, 1, 3});
}

/// Each head several times in a row.
Val AttentionNode::repeatHeads(const Val &x, int64_t times) {
  if (times == 1)
    return x;
  const int64_t b = x.dim(0), h = x.dim(1), n = x.dim(2), d = x.dim(3);
  const Val wide =
      e.broadcast(e.reshape(x, {b, h, 1, n, d}), {b, h, times, n, d});
  return e.reshape(wide, {b, h * times, n, d});
}

/// Adds to the bias: -inf where `allowed` is false.
void AttentionNode::combine(const Val &allowed) {
  const Type element = q.getElementType();
  const Val add =
      e.select(allowed, e.scalar(element, 0), e.scalar(element, -kInfinity));
  bias = bias ? e.add(bias, add) : add;
}

/// The mask input, padded to the number of keys: more keys than mask entries
/// are masked.
Val AttentionNode::maskInput() {
  const Val &mask = c.in(3);
  if (mask.getRank() < 1)
    c.fail("its mask is a scalar");
  const int64_t missing = k.dim(2) - mask.getShape().back();
  if (missing <= 0)
    return mask;
  const bool boolean = mask.getElementType().isInteger(1);
  SmallVector<int64_t> none(mask.getRank(), 0), high(mask.getRank(), 0);
  high.back() = missing;
  return e.pad(mask, none, high, none, boolean ? 0 : -kInfinity);
}

/// key < length of each sample, [batch, 1, 1, keys].
Val AttentionNode::lessThanLength(const Val &lengths) {
  const Type i64 = e.i64();
  const Val key = e.iota(RankedTensorType::get({1, 1, 1, k.dim(2)}, i64), 3);
  return e.compare("lt", key,
                   e.reshape(e.cast(lengths, i64), {q.dim(0), 1, 1, 1}));
}

/// Which keys a query may see by position: causal order and window. Null when
/// all of them.
Val AttentionNode::positionMask() {
  const bool causal = c.intAttr("is_causal", 0) != 0;
  const int64_t left = c.intAttr("left_window_size", -1),
                right = c.intAttr("right_window_size", -1);
  if (!causal && left < 0 && right < 0)
    return {};
  const Type i64 = e.i64();
  const auto square = RankedTensorType::get({1, 1, q.dim(2), k.dim(2)}, i64);
  // Query position minus key position; queries are the last of the keys.
  Val distance = e.add(e.sub(e.iota(square, 2), e.iota(square, 3)),
                       static_cast<double>(past));
  if (c.has(6)) {
    const Val length = e.reshape(e.cast(c.in(6), i64), {q.dim(0), 1, 1, 1});
    distance = e.add(distance, e.add(length, -static_cast<double>(q.dim(2))));
  }
  Val allowed;
  const auto require = [&](const Val &condition) {
    allowed = allowed ? e.binary<nn::AndOp>(allowed, condition) : condition;
  };
  if (causal)
    require(e.compare("ge", distance, 0));
  if (left >= 0)
    require(e.compare("le", distance, static_cast<double>(left)));
  if (right >= 0)
    require(e.compare("ge", distance, -static_cast<double>(right)));
  return allowed;
}

/// Softmax over the keys; a query that may see no key gets zeros, and its
/// scores are replaced before the exponential so that no gradient is NaN.
Val AttentionNode::maskedSoftmax(Val scores) {
  Val noKey;
  if (bias) {
    const Val best = e.reduce("max", bias, {bias.getRank() - 1});
    const Val blocked = e.compare("eq", best, -kInfinity);
    const bool never = blocked.isKnown() &&
                       llvm::all_of(e.literal(blocked).compressed().integers(),
                                    [](int64_t v) { return v == 0; });
    if (!never)
      noKey = e.broadcast(blocked, scores.getShape());
    scores = e.add(scores, bias);
    if (noKey)
      scores = e.select(noKey, e.splatLike(scores, 0), scores);
  }
  Val wide = scores;
  if (c.attribute("softmax_precision"))
    wide = e.cast(scores, c.typeAttr("softmax_precision", ElementType::Float));
  const Val weights = e.cast(e.softmax(wide), scores.getElementType());
  return noKey ? e.select(noKey, e.splatLike(weights, 0), weights) : weights;
}

void AttentionNode::run() {
  const bool flat = c.floatIn(0).getRank() == 3;
  q = heads(c.floatIn(0), "q_num_heads");
  k = heads(c.floatIn(1), "kv_num_heads");
  v = heads(c.floatIn(2), "kv_num_heads");
  if (c.has(4)) {
    past = c.in(4).dim(2);
    k = e.concat({c.in(4), k}, 2);
    v = e.concat({c.in(5), v}, 2);
  }
  c.out(1, k);
  c.out(2, v);
  if (k.dim(1) < 1 || q.dim(1) % k.dim(1) != 0 || v.dim(1) != k.dim(1))
    c.fail("its " + std::to_string(q.dim(1)) +
           " query heads do not divide by " + std::to_string(k.dim(1)) +
           " key heads");
  if (c.has(3)) {
    const Val mask = maskInput();
    if (mask.getElementType().isInteger(1))
      combine(mask);
    else
      bias = mask;
  }
  if (const Val allowed = positionMask())
    combine(allowed);
  if (c.has(6)) {
    c.limitLengths(6, k.dim(2));
    combine(lessThanLength(c.in(6)));
  }
  const int64_t times = q.dim(1) / k.dim(1);
  const Val keys = repeatHeads(k, times), values = repeatHeads(v, times);
  const double scale = c.attribute("scale")
                           ? c.floatAttr("scale", 1)
                           : 1 / std::sqrt(static_cast<double>(q.dim(3)));
  Val scores = e.matmul(e.mul(q, scale), keys, false, true);
  const int64_t mode = c.intAttr("qk_matmul_output_mode", 0);
  if (mode == 0)
    c.out(3, scores);
  if (const double cap = c.floatAttr("softcap", 0); cap > 0)
    scores = e.mul(e.unary<nn::TanhOp>(e.mul(scores, 1 / cap)), cap);
  if (bias)
    bias = e.broadcast(bias, [&] {
      // Keep dimensions of size 1: the bias is the same for them.
      SmallVector<int64_t> shape(4 - bias.getRank(), 1);
      llvm::append_range(shape, bias.getShape());
      shape[3] = k.dim(2);
      return shape;
    }());
  if (c.wants(3) && mode == 1)
    c.out(3, scores);
  if (c.wants(3) && mode == 2)
    c.out(3, bias ? e.add(scores, bias) : scores);
  const Val weights = maskedSoftmax(scores);
  if (mode == 3)
    c.out(3, weights);
  Val y = e.matmul(weights, values);
  if (flat) {
    y = e.transpose(y, {0, 2, 1, 3});
    y = e.reshape(y, {y.dim(0), y.dim(1), y.dim(2) * y.dim(3)});
  }
  c.out(0, y);
}

void importAttention(NodeContext &c) { AttentionNode(c).run(); }

//===----------------------------------------------------------------------===//
// Rotary embedding
//===----------------------------------------------------------------------===//

/// Rotates pairs of each head: halves, or neighbours when interleaved.
void importRotaryEmbedding(NodeContext &c) {
  Emitter &e = c.e;
  const Val &input = c.floatIn(0);
  const bool flat = input.getRank() == 3;
  Val x = input; // [batch, length, heads, size]
  if (flat) {
    const int64_t count = c.intAttr("num_heads");
    if (count < 1 || input.dim(2) % count != 0)
      c.fail("its input does not divide into its heads");
    x = e.reshape(x, {x.dim(0), x.dim(1), count, x.dim(2) / count});
  } else if (input.getRank() == 4) {
    x = e.transpose(x, {0, 2, 1, 3});
  } else {
    c.fail("its input is neither 3-D nor 4-D");
  }
  int64_t size = c.intAttr("rotary_embedding_dim", 0);
  size = size == 0 ? x.dim(3) : size;
  if (size < 2 || size % 2 != 0 || size > x.dim(3))
    c.fail("it rotates " + std::to_string(size) + " of " +
           std::to_string(x.dim(3)) + " elements");
  const int64_t half = size / 2;
  const auto table = [&](size_t i) {
    const Val rows = c.has(3) ? e.gather(c.in(i), c.in(3), 0) : c.in(i);
    if (rows.getRank() != 3)
      c.fail("its tables do not have three dimensions");
    return e.reshape(rows, {rows.dim(0), rows.dim(1), 1, rows.dim(2)});
  };
  const Val cos = table(1), sin = table(2);
  const Val turned = e.sliceAxis(x, 3, 0, size);
  const bool interleaved = c.intAttr("interleaved", 0) != 0;
  const SmallVector<int64_t> pairs{x.dim(0), x.dim(1), x.dim(2), half, 2};
  const auto part = [&](int64_t which) {
    if (!interleaved)
      return e.sliceAxis(turned, 3, which * half, half);
    return e.reshape(e.sliceAxis(e.reshape(turned, pairs), 4, which, 1),
                     ArrayRef(pairs).drop_back());
  };
  const Val a = part(0), b = part(1);
  Val real = e.sub(e.mul(a, cos), e.mul(b, sin));
  Val imaginary = e.add(e.mul(a, sin), e.mul(b, cos));
  Val y;
  if (interleaved) {
    SmallVector<int64_t> thin(pairs);
    thin[4] = 1;
    y = e.reshape(
        e.concat({e.reshape(real, thin), e.reshape(imaginary, thin)}, 4),
        turned.getShape());
  } else {
    y = e.concat({real, imaginary}, 3);
  }
  if (size < x.dim(3))
    y = e.concat({y, e.sliceAxis(x, 3, size, x.dim(3) - size)}, 3);
  c.out(flat ? e.reshape(y, input.getShape()) : e.transpose(y, {0, 2, 1, 3}));
}

} // namespace pipec::onnx
