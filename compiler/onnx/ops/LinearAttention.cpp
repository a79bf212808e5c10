//===- LinearAttention.cpp - importer of linear attention -----------------===//
//
// A state of keys times values that every position changes and reads, written
// out position after position.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ops/Ops.h"

#include <cmath>

using namespace mlir;

namespace pipec::onnx {
namespace {

constexpr int64_t kMostSteps = 4096;

class LinearAttention {
public:
  explicit LinearAttention(NodeContext &c) : c(c), e(c.e) {}
  void run();

private:
  void readShapes();
  Val heads(const Val &x, int64_t count, int64_t width);
  Val at(const Val &x, int64_t step);
  Val step(int64_t t, const Val &before);

  NodeContext &c;
  Emitter &e;
  int64_t batch = 0, steps = 0, queries = 0, states = 0, keyWidth = 0,
          valueWidth = 0;
  bool decays = false, corrects = false;
  Type state;               ///< element type of the state
  Val q, k, v, decay, beta; ///< [batch, heads, steps, width]
};

} // namespace

/// [batch, steps, heads * width] as [batch, heads, steps, width]. The state
/// would lose digits in narrow floats.
Val LinearAttention::heads(const Val &x, int64_t count, int64_t width) {
  if (x.getShape() != ArrayRef<int64_t>({batch, steps, count * width}))
    c.fail("its operand " + shapeText(x.getShape()) + " is not of the shape " +
           shapeText({batch, steps, count * width}));
  return e.transpose(e.reshape(e.cast(x, state), {batch, steps, count, width}),
                     {0, 2, 1, 3});
}

void LinearAttention::readShapes() {
  const Val &query = c.floatIn(0), &key = c.floatIn(1), &value = c.floatIn(2);
  queries = c.intAttr("q_num_heads");
  states = c.intAttr("kv_num_heads");
  const std::string rule = c.stringAttr("update_rule", "gated_delta");
  decays = rule == "gated" || rule == "gated_delta";
  corrects = rule == "delta" || rule == "gated_delta";
  if (!decays && !corrects && rule != "linear")
    c.fail("its update_rule '" + rule + "' is unknown");
  if (query.getRank() != 3 || key.getRank() != 3 || value.getRank() != 3 ||
      states < 1 || queries < states || queries % states != 0 ||
      query.dim(2) % queries != 0 || value.dim(2) % states != 0)
    c.fail("its operands " + shapeText(query.getShape()) + " and " +
           shapeText(value.getShape()) + " do not have " +
           std::to_string(queries) + " and " + std::to_string(states) +
           " heads");
  batch = query.dim(0);
  steps = query.dim(1);
  if (steps < 1 || steps > kMostSteps)
    c.fail("it has " + std::to_string(steps) + " positions, 1 to " +
           std::to_string(kMostSteps) + " are unrolled");
  keyWidth = query.dim(2) / queries;
  state = query.getElementType().getIntOrFloatBitWidth() < 32
              ? Type(Float32Type::get(e.getContext()))
              : query.getElementType();
  valueWidth = value.dim(2) / states;
  q = heads(query, queries, keyWidth);
  k = heads(key, states, keyWidth);
  v = heads(value, states, valueWidth);
  if (decays) {
    const Val &x = c.floatIn(4);
    const bool whole =
        x.getShape() == ArrayRef<int64_t>({batch, steps, states});
    decay = e.unary<nn::ExpOp>(heads(x, states, whole ? 1 : keyWidth));
  }
  if (corrects) {
    const Val &x = c.floatIn(5);
    const bool one = x.getShape() == ArrayRef<int64_t>({batch, steps, 1});
    beta = heads(x, one ? 1 : states, 1);
  }
}

/// Position `step`, as rows of what follows: [batch, heads, 1, width].
Val LinearAttention::at(const Val &x, int64_t step) {
  return e.sliceAxis(x, 2, step, 1);
}

/// The state after position t: [batch, heads, keys, values].
Val LinearAttention::step(int64_t t, const Val &before) {
  Val memory = before;
  if (decays)
    memory = e.mul(memory, e.transpose(at(decay, t), {0, 1, 3, 2}));
  const Val key = at(k, t);
  Val value = at(v, t);
  if (corrects)
    value = e.mul(e.sub(value, e.matmul(key, memory)), at(beta, t));
  return e.add(memory, e.matmul(key, value, /*transposeX=*/true));
}

void LinearAttention::run() {
  readShapes();
  const double given = c.floatAttr("scale", 0);
  const double scale =
      given == 0 ? 1 / std::sqrt(static_cast<double>(keyWidth)) : given;
  const SmallVector<int64_t> shape{batch, states, keyWidth, valueWidth};
  Val memory =
      c.has(3) ? e.cast(c.floatIn(3), state) : e.splat(v.type.clone(shape), 0);
  if (memory.getShape() != ArrayRef(shape))
    c.fail("its past state " + shapeText(memory.getShape()) +
           " is not of the shape " + shapeText(shape));
  const int64_t group = queries / states;
  SmallVector<Val> outputs;
  for (int64_t t = 0; t < steps; ++t) {
    memory = step(t, memory);
    const Val query = e.reshape(at(q, t), {batch, states, group, keyWidth});
    outputs.push_back(e.reshape(e.mul(e.matmul(query, memory), scale),
                                {batch, 1, queries * valueWidth}));
  }
  c.out(0, e.cast(e.concat(outputs, 1), c.in(0).getElementType()));
  c.out(1, e.cast(memory, c.has(3) ? c.in(3).getElementType()
                                   : c.in(0).getElementType()));
}

void importLinearAttention(NodeContext &c) { LinearAttention(c).run(); }

} // namespace pipec::onnx
