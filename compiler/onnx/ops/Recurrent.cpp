//===- Recurrent.cpp - importers of LSTM, GRU and RNN ---------------------===//
//
// Recurrences over a known sequence length are unrolled into core ops. The
// products with the input are one matmul for all steps; each step adds the
// product with the state.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Importer.h"
#include "compiler/onnx/ops/Ops.h"

using namespace mlir;

namespace pipec::onnx {

namespace {

/// What the three operators share: operands by direction, activations, masks.
class Recurrence {
public:
  Recurrence(NodeContext &c, int64_t gates, std::vector<std::string> defaults)
      : c(c), e(c.e), gates(gates), defaults(std::move(defaults)) {}

  /// state[0] is h, state[1] the cell of an LSTM.
  using State = SmallVector<Val, 2>;
  /// One step: input part [batch, gates * hidden] with biases, previous state.
  using Step = std::function<State(const Val &input, const State &state)>;
  /// Makes the step function of a direction.
  using MakeStep = std::function<Step(int64_t direction)>;

  void run(size_t states, ArrayRef<size_t> initialInputs,
           const MakeStep &makeStep);

  /// w of one direction, [gates * hidden, columns].
  Val matrix(size_t input, int64_t direction);
  /// A slice of the biases of one direction: [hidden * count] from gate `gate`.
  Val bias(int64_t direction, int64_t gate, int64_t count);
  bool hasBias() const { return c.has(3); }
  Val gate(const Val &all, int64_t index) {
    return e.sliceAxis(all, 1, index * hidden, hidden);
  }
  /// h times the transpose of r; nothing when h is zero.
  Val product(const Val &h, const Val &r);
  Val sum(const Val &x, const Val &y) { return y ? e.add(x, y) : x; }
  Val activate(int64_t direction, int64_t which, const Val &x);
  Val clip(const Val &x);

  NodeContext &c;
  Emitter &e;
  int64_t gates, hidden = 0, directions = 1, steps = 0, batch = 0;

private:
  void readShapes();
  Val inputPart(int64_t direction, const Val &x);

  std::vector<std::string> defaults;
  std::string direction;
  bool batchFirst = false;
};

} // namespace

static bool isZero(Emitter &e, const Val &v) {
  if (!v.isKnown())
    return false;
  const nn::Literal literal = e.literal(v);
  return literal.getNumElements() > 0 && literal.getStoredElements() == 1 &&
         literal.doubleAt(literal.getOffset()) == 0;
}

void Recurrence::readShapes() {
  const Val &x = c.floatIn(0), &w = c.floatIn(1), &r = c.floatIn(2);
  batchFirst = c.intAttr("layout", 0) != 0;
  direction = c.stringAttr("direction", "forward");
  if (direction != "forward" && direction != "reverse" &&
      direction != "bidirectional")
    c.fail("its direction '" + direction + "' is unknown");
  directions = direction == "bidirectional" ? 2 : 1;
  if (x.getRank() != 3 || w.getRank() != 3 || r.getRank() != 3)
    c.fail("its input and weights are not 3-D");
  steps = x.dim(batchFirst ? 1 : 0);
  batch = x.dim(batchFirst ? 0 : 1);
  hidden = r.dim(2);
  const bool fits = w.dim(0) == directions && r.dim(0) == directions &&
                    w.dim(1) == gates * hidden && r.dim(1) == gates * hidden &&
                    w.dim(2) == x.dim(2) &&
                    c.intAttr("hidden_size", hidden) == hidden;
  if (!fits)
    c.fail("its weights " + shapeText(w.getShape()) + " and " +
           shapeText(r.getShape()) + " do not fit its input " +
           shapeText(x.getShape()));
  constexpr int64_t kMostSteps = 4096;
  if (steps > kMostSteps)
    c.fail("its sequence of " + std::to_string(steps) +
               " steps is too long to unroll",
           "use shorter sequences, up to " + std::to_string(kMostSteps));
}

Val Recurrence::matrix(size_t input, int64_t d) {
  const Val &w = c.in(input);
  return e.reshape(e.sliceAxis(w, 0, d, 1), w.getShape().drop_front());
}

Val Recurrence::bias(int64_t d, int64_t gate, int64_t count) {
  const Val &b = c.in(3);
  if (b.getShape() != ArrayRef<int64_t>({directions, 2 * gates * hidden}))
    c.fail("its bias has the shape " + shapeText(b.getShape()));
  const Val row = e.reshape(e.sliceAxis(b, 0, d, 1), {2 * gates * hidden});
  return e.sliceAxis(row, 0, gate * hidden, count * hidden);
}

Val Recurrence::product(const Val &h, const Val &r) {
  if (isZero(e, h))
    return {};
  return e.matmul(h, r, false, true);
}

Val Recurrence::clip(const Val &x) {
  const double limit = c.floatAttr("clip", 0);
  if (limit <= 0)
    return x;
  return e.min(e.max(x, e.splatLike(x, -limit)), e.splatLike(x, limit));
}

/// An activation function by its ONNX name, with its two parameters.
static Val activation(NodeContext &c, std::string name, double alpha,
                      double beta, const Val &x) {
  Emitter &e = c.e;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char ch) {
    return static_cast<char>(std::tolower(ch));
  });
  const Val zero = e.splatLike(x, 0);
  if (name == "sigmoid")
    return e.unary<nn::SigmoidOp>(x);
  if (name == "tanh")
    return e.unary<nn::TanhOp>(x);
  if (name == "relu")
    return e.unary<nn::ReluOp>(x);
  if (name == "affine")
    return e.add(e.mul(x, alpha), beta);
  if (name == "scaledtanh")
    return e.mul(e.unary<nn::TanhOp>(e.mul(x, beta)), alpha);
  if (name == "leakyrelu")
    return e.select(e.compare("ge", x, 0), x, e.mul(x, alpha));
  if (name == "thresholdedrelu")
    return e.select(e.compare("ge", x, alpha), x, zero);
  if (name == "hardsigmoid")
    return e.min(e.max(e.add(e.mul(x, alpha), beta), zero), e.splatLike(x, 1));
  if (name == "elu")
    return e.select(
        e.compare("ge", x, 0), x,
        e.mul(e.add(e.unary<nn::ExpOp>(e.min(x, zero)), -1), alpha));
  if (name == "softsign")
    return e.div(x, e.add(e.unary<nn::AbsOp>(x), 1));
  if (name == "softplus")
    return e.add(
        e.unary<nn::ReluOp>(x),
        e.unary<nn::Log1pOp>(e.unary<nn::ExpOp>(e.neg(e.unary<nn::AbsOp>(x)))));
  c.fail("its activation '" + name + "' is unknown");
}

/// What alpha and beta are when the node does not say.
static std::pair<double, double> activationDefaults(std::string_view name) {
  if (name == "LeakyRelu")
    return {0.01, 0};
  if (name == "HardSigmoid")
    return {0.2, 0.5};
  return {1, name == "ScaledTanh" ? 1 : 0};
}

Val Recurrence::activate(int64_t d, int64_t which, const Val &x) {
  const Attribute *given = c.attribute("activations");
  const auto perDirection = static_cast<int64_t>(defaults.size());
  const size_t index = d * perDirection + which;
  std::string name = defaults[which];
  if (given && index < given->strings.size())
    name = given->strings[index];
  auto [alpha, beta] = activationDefaults(name);
  // The lists have entries for the functions that take one, in order.
  const auto listed = [&](const char *attribute, double otherwise) {
    const auto list = c.floatsAttr(attribute);
    return list && index < list->size() ? double((*list)[index]) : otherwise;
  };
  return activation(c, name, listed("activation_alpha", alpha),
                    listed("activation_beta", beta), x);
}

/// x w^T for all steps at once: [steps, batch, gates * hidden].
Val Recurrence::inputPart(int64_t d, const Val &x) {
  const Val rows = e.reshape(x, {steps * batch, x.dim(2)});
  const Val all = e.matmul(rows, matrix(1, d), false, true);
  return e.reshape(all, {steps, batch, gates * hidden});
}

void Recurrence::run(size_t states, ArrayRef<size_t> initialInputs,
                     const MakeStep &makeStep) {
  readShapes();
  const Type i64 = e.i64();
  const Val x = batchFirst ? e.transpose(c.in(0), {1, 0, 2}) : c.in(0);
  if (!batchFirst && steps > 1)
    c.importer.samplesOnSecondAxis(x.value, c.node.op);
  const auto tensor =
      RankedTensorType::get({batch, hidden}, x.getElementType());
  Val lengths; // [batch, 1], unless every sequence is whole
  if (c.has(4)) {
    c.limitLengths(4, steps);
    lengths = e.reshape(e.cast(c.in(4), i64), {batch, 1});
    if (lengths.isKnown() &&
        llvm::all_of(e.literal(lengths).integers(),
                     [&](int64_t n) { return n == steps; }))
      lengths = Val();
  }
  std::vector<std::vector<Val>> outputs(directions, std::vector<Val>(steps));
  std::vector<State> last(directions);
  for (int64_t d = 0; d < directions; ++d) {
    State state;
    for (size_t s = 0; s < states; ++s) {
      state.push_back(e.splat(tensor, 0));
      if (!c.has(initialInputs[s]))
        continue;
      Val initial = c.in(initialInputs[s]);
      if (batchFirst)
        initial = e.transpose(initial, {1, 0, 2});
      if (initial.getShape() != ArrayRef<int64_t>({directions, batch, hidden}))
        c.fail("its initial state has the shape " +
               shapeText(initial.getShape()));
      state[s] = e.reshape(e.sliceAxis(initial, 0, d, 1), {batch, hidden});
    }
    const Val input = inputPart(d, x);
    const Step step = makeStep(d);
    const bool backward = direction == "reverse" || d == 1;
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t t = backward ? steps - 1 - i : i;
      const Val now =
          e.reshape(e.sliceAxis(input, 0, t, 1), {batch, gates * hidden});
      State next = step(now, state);
      outputs[d][t] = next[0];
      if (lengths) {
        const Val runs = e.compare("gt", lengths, static_cast<double>(t));
        for (size_t s = 0; s < states; ++s)
          next[s] = e.select(runs, next[s], state[s]);
        outputs[d][t] = e.select(runs, outputs[d][t], e.splat(tensor, 0));
      }
      state = next;
    }
    last[d] = state;
  }
  if (c.wants(0)) {
    std::vector<Val> rows;
    for (int64_t t = 0; t < steps; ++t)
      for (int64_t d = 0; d < directions; ++d)
        rows.push_back(e.reshape(outputs[d][t], {1, batch, hidden}));
    const Val y =
        e.reshape(e.concat(rows, 0), {steps, directions, batch, hidden});
    c.out(0, batchFirst ? e.transpose(y, {2, 0, 1, 3}) : y);
  }
  for (size_t s = 0; s < states; ++s) {
    if (!c.wants(s + 1))
      continue;
    std::vector<Val> rows;
    for (int64_t d = 0; d < directions; ++d)
      rows.push_back(e.reshape(last[d][s], {1, batch, hidden}));
    const Val y = e.concat(rows, 0);
    c.out(s + 1, batchFirst ? e.transpose(y, {1, 0, 2}) : y);
  }
}

//===----------------------------------------------------------------------===//
// The three operators
//===----------------------------------------------------------------------===//

/// h' = f(x w + h r + b)
void importRNN(NodeContext &c) {
  Recurrence rnn(c, 1, {"Tanh"});
  const size_t initial[] = {5};
  rnn.run(1, initial, [&](int64_t d) -> Recurrence::Step {
    const Val r = rnn.matrix(2, d);
    Val b;
    if (rnn.hasBias())
      b = rnn.e.add(rnn.bias(d, 0, 1), rnn.bias(d, 1, 1));
    return [&rnn, r, b, d](const Val &input, const Recurrence::State &s) {
      Val sum = rnn.sum(input, rnn.product(s[0], r));
      sum = rnn.sum(sum, b);
      return Recurrence::State{rnn.activate(d, 0, rnn.clip(sum))};
    };
  });
}

/// Gates in the order update z, reset r, candidate h:
///   h' = (1 - z) n + z h, n = g(x + (r h) R + b), or with linear_before_reset
///   n = g(x + r (h R + Rb) + Wb)
void importGRU(NodeContext &c) {
  Recurrence rnn(c, 3, {"Sigmoid", "Tanh"});
  const bool linear = c.intAttr("linear_before_reset", 0) != 0;
  const size_t initial[] = {5};
  rnn.run(1, initial, [&, linear](int64_t d) -> Recurrence::Step {
    Emitter &e = rnn.e;
    const Val r = rnn.matrix(2, d);
    const Val rGates = e.sliceAxis(r, 0, 0, 2 * rnn.hidden);
    const Val rCandidate = e.sliceAxis(r, 0, 2 * rnn.hidden, rnn.hidden);
    Val bGates, wCandidate, rbCandidate;
    if (rnn.hasBias()) {
      bGates = e.add(rnn.bias(d, 0, 2), rnn.bias(d, 3, 2));
      wCandidate = rnn.bias(d, 2, 1);
      rbCandidate = rnn.bias(d, 5, 1);
    }
    return [=, &rnn, &e](const Val &input, const Recurrence::State &s) {
      const Val h = s[0];
      Val both = e.sliceAxis(input, 1, 0, 2 * rnn.hidden);
      both = rnn.sum(rnn.sum(both, rnn.product(h, rGates)), bGates);
      both = rnn.activate(d, 0, rnn.clip(both));
      const Val z = rnn.gate(both, 0), reset = rnn.gate(both, 1);
      Val n = rnn.sum(rnn.gate(input, 2), wCandidate);
      if (linear) {
        const Val product = rnn.product(h, rCandidate);
        Val state = product;
        if (rbCandidate)
          state = product ? e.add(product, rbCandidate)
                          : e.broadcast(rbCandidate, h.getShape());
        if (state)
          n = e.add(n, e.mul(reset, state));
      } else {
        const Val part = isZero(e, h) ? h : e.mul(reset, h);
        n = rnn.sum(rnn.sum(n, rnn.product(part, rCandidate)), rbCandidate);
      }
      n = rnn.activate(d, 1, rnn.clip(n));
      const Val keep = e.mul(z, h);
      const Val fresh = e.mul(e.sub(e.splatLike(z, 1), z), n);
      return Recurrence::State{e.add(fresh, keep)};
    };
  });
}

/// Gates in the order input i, output o, forget f, cell c; peepholes i, o, f:
///   c' = f c + i g, h' = o k(c')
void importLSTM(NodeContext &c) {
  Recurrence rnn(c, 4, {"Sigmoid", "Tanh", "Tanh"});
  const bool couples = c.intAttr("input_forget", 0) != 0;
  const size_t initial[] = {5, 6};
  rnn.run(2, initial, [&, couples](int64_t d) -> Recurrence::Step {
    Emitter &e = rnn.e;
    const Val r = rnn.matrix(2, d);
    Val b, peep;
    if (rnn.hasBias())
      b = e.add(rnn.bias(d, 0, 4), rnn.bias(d, 4, 4));
    if (c.has(7))
      peep = e.reshape(e.sliceAxis(c.in(7), 0, d, 1), {1, 3 * rnn.hidden});
    return [=, &rnn, &e](const Val &input, const Recurrence::State &s) {
      const Val cell = s[1];
      const Val all = rnn.sum(rnn.sum(input, rnn.product(s[0], r)), b);
      const auto part = [&](int64_t gate, int64_t peephole, const Val &seen) {
        Val v = rnn.gate(all, gate);
        if (peep && peephole >= 0)
          v = e.add(v, e.mul(seen, e.sliceAxis(peep, 1, peephole * rnn.hidden,
                                               rnn.hidden)));
        return rnn.clip(v);
      };
      const Val i = rnn.activate(d, 0, part(0, 0, cell));
      const Val f = couples ? e.sub(e.splatLike(i, 1), i)
                            : rnn.activate(d, 0, part(2, 2, cell));
      const Val g = rnn.activate(d, 1, part(3, -1, cell));
      const Val next =
          isZero(e, cell) ? e.mul(i, g) : e.add(e.mul(f, cell), e.mul(i, g));
      const Val o = rnn.activate(d, 0, part(1, 1, next));
      return Recurrence::State{e.mul(o, rnn.activate(d, 2, next)), next};
    };
  });
}

} // namespace pipec::onnx
