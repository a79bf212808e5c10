//===- SamplePrograms.cpp - little training programs at random ------------===//
#include "compiler/driver/SamplePrograms.h"

#include "dialects/nn/Build.h"
#include "support/Failure.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cmath>

using namespace mlir;
using namespace pipec::nn;

namespace pipec {
namespace {

using Shape = SmallVector<int64_t>;

class ModelWriter {
public:
  ModelWriter(NNBuilder &b, ModuleOp module, Choices &choose,
              std::vector<SampleInput> &inputs, bool wide)
      : b(b), module(module), choose(choose), inputs(inputs), wide(wide) {
    b.setInsertionPointToEnd(module.getBody());
    main = func::FuncOp::create(b, "main", b.getFunctionType({}, {}));
    b.setInsertionPointToStart(main.addEntryBlock());
  }

  void write(int number) {
    Value y = number % 4 == 0   ? pictures()
              : number % 4 == 1 ? attention()
              : number % 4 == 2 ? perceptron()
                                : recurrence();
    const int64_t classes = choose.of({5, 12, 20, 40});
    y = linear(y, classes);
    inputs.push_back({"labels", classes});
    func::ReturnOp::create(b, y);
    main.setFunctionType(
        b.getFunctionType(main.getArgumentTypes(), {y.getType()}));
    main.setResultAttr(0, "nn.name", b.getStringAttr("logits"));
  }

private:
  RankedTensorType type(ArrayRef<int64_t> shape) {
    return RankedTensorType::get(shape, b.getF32Type());
  }
  static Shape shapeOf(Value x) {
    return llvm::to_vector(tensorType(x).getShape());
  }
  bool now() { return choose.between(0, 1) == 1; }
  int64_t size(std::initializer_list<int64_t> narrowOnes,
               std::initializer_list<int64_t> wideOnes) {
    return choose.of(wide ? wideOnes : narrowOnes);
  }

  Value input(const std::string &name, RankedTensorType type,
              int64_t limit = 0) {
    const NamedAttribute attributes[] = {
        b.getNamedAttr("nn.name", b.getStringAttr(name)),
        b.getNamedAttr("nn.batch_axis", b.getI64IntegerAttr(0))};
    const unsigned index = main.getNumArguments();
    if (failed(main.insertArgument(index, type, b.getDictionaryAttr(attributes),
                                   b.getLoc())))
      throw Failure(Exit::Internal, "a measured program takes no input");
    inputs.push_back({name, limit});
    return main.getArgument(index);
  }

  Value weight(const Shape &shape) {
    const std::string name = "w" + std::to_string(weights++);
    OpBuilder top = OpBuilder::atBlockBegin(module.getBody());
    ParameterOp::create(top, b.getLoc(), name, type(shape), "weight",
                        b.getI64IntegerAttr(0), b.getI64IntegerAttr(0),
                        b.getI64IntegerAttr(byteSize(type(shape))), TypeAttr(),
                        ElementsAttr(), StringAttr());
    return WeightOp::create(b, type(shape),
                            FlatSymbolRefAttr::get(b.getContext(), name));
  }

  /// One weight for each element of `axis`, repeated over x.
  Value along(Value x, size_t axis) {
    Shape shape(shapeOf(x).size(), 1);
    shape[axis] = shapeOf(x)[axis];
    return broadcast(b, reshape(b, weight({shape[axis]}), shape), shapeOf(x));
  }

  Value linear(Value x, int64_t width) {
    Shape shape = shapeOf(x);
    const int64_t depth = shape.back();
    Value rows = reshape(b, x, {tensorType(x).getNumElements() / depth, depth});
    Value y = now() ? matmul(b, rows, weight({depth, width}))
                    : matmul(b, rows, weight({width, depth}), false, true);
    shape.back() = width;
    y = reshape(b, y, shape);
    return add(b, y, along(y, shape.size() - 1));
  }

  Value normalized(Value x, ArrayRef<int64_t> axes) {
    const Shape shape = shapeOf(x);
    Value centred = sub(b, x, broadcast(b, mean(b, x, axes), shape));
    Value variance = mean(b, mul(b, centred, centred), axes);
    Value scale = RsqrtOp::create(b, addScalar(b, variance, 1e-5));
    return mul(b, centred, broadcast(b, scale, shape));
  }

  //===--------------------------------------------------------------------===//
  // Pictures
  //===--------------------------------------------------------------------===//

  Value convolution(Value x, int64_t outputs, int64_t kernel, int64_t stride,
                    bool norm) {
    Value w = weight({outputs, shapeOf(x)[1], kernel, kernel});
    const Shape strides(2, stride), ones(2, 1), pads(2, kernel / 2);
    Value y = ConvOp::create(b, x, w, strides, ones, pads, pads, 1);
    if (norm) {
      y = normalized(y, {0, 2, 3});
      y = mul(b, y, along(y, 1));
    }
    return add(b, y, along(y, 1));
  }

  Value maximum(Value x, int64_t window) {
    const Shape kernel(2, window), strides(2, 2), ones(2, 1),
        pads(2, window == 3);
    Shape shape = shapeOf(x);
    for (size_t i : {2, 3})
      shape[i] = (shape[i] + 2 * pads[0] - window) / 2 + 1;
    return MaxPoolOp::create(b, type(shape),
                             RankedTensorType::get(shape, b.getI32Type()), x,
                             kernel, strides, ones, pads, pads)
        ->getResult(0);
  }

  Value pictures() {
    const int64_t side = size({18, 20, 24, 26, 30, 36}, {36, 44, 56});
    Value x = input("x", type({size({2, 3, 4, 6, 8}, {4, 6}), choose.of({1, 3}),
                               side, side}));
    const bool norm = now();
    const int64_t layers = choose.between(2, 4);
    int64_t channels = size({5, 8, 10, 12, 20}, {16, 24, 30});
    for (int64_t i = 0; i < layers; ++i) {
      x = ReluOp::create(
          b, convolution(x, channels, choose.of({3, 3, 5}), 1, norm));
      if (norm && i > 0) { // a residual
        Value y = ReluOp::create(b, convolution(x, channels, 3, 1, true));
        x = ReluOp::create(b, add(b, convolution(y, channels, 3, 1, true), x));
      }
      if (i == 0 || now())
        x = maximum(x, choose.of({2, 3}));
      channels += channels / choose.of({1, 2, 4});
    }
    const Shape shape = shapeOf(x);
    if (now())
      return reshape(b, mean(b, x, {2, 3}), {shape[0], shape[1]});
    return ReluOp::create(
        b, linear(reshape(b, x, {shape[0], shape[1] * shape[2] * shape[3]}),
                  choose.of({24, 50, 90})));
  }

  //===--------------------------------------------------------------------===//
  // Attention
  //===--------------------------------------------------------------------===//

  Value heads(Value x, int64_t count) {
    const Shape s = shapeOf(x);
    return transpose(b, reshape(b, x, {s[0], s[1], count, s[2] / count}),
                     {0, 2, 1, 3});
  }

  Value layerNorm(Value x) {
    Value y = normalized(x, {2});
    return add(b, mul(b, y, along(y, 2)), along(y, 2));
  }

  Value activated(Value x) {
    switch (choose.between(0, 2)) {
    case 0: // by the error function
      return mul(b, mulScalar(b, x, 0.5),
                 addScalar(b, ErfOp::create(b, mulScalar(b, x, M_SQRT1_2)), 1));
    case 1:
      return mul(b, x, SigmoidOp::create(b, x));
    default: // by the hyperbolic tangent
      Value cubic = mul(b, x, mul(b, x, mulScalar(b, x, 0.044715)));
      Value t = TanhOp::create(b, mulScalar(b, add(b, x, cubic), 0.797885));
      return mul(b, mulScalar(b, x, 0.5), addScalar(b, t, 1));
    }
  }

  Value attend(Value x, int64_t count) {
    const Shape s = shapeOf(x);
    const int64_t width = s[2];
    Value q, k, v;
    if (now()) {
      Value all = linear(x, 3 * width);
      auto part = [&](int64_t i) {
        return slice(b, all, {0, 0, i * width}, s, {1, 1, 1});
      };
      q = part(0), k = part(1), v = part(2);
    } else {
      q = linear(x, width), k = linear(x, width), v = linear(x, width);
    }
    Value scores = matmul(b, heads(q, count), heads(k, count), false, true);
    scores = mulScalar(b, scores, 1 / std::sqrt(double(width / count)));
    if (now()) { // what comes later is not seen
      auto places = RankedTensorType::get(shapeOf(scores), b.getI64Type());
      Value seen = compare(b, "ge", iota(b, places, 2), iota(b, places, 3));
      scores = select(b, seen, scores, splatLike(b, scores, -1e9));
    }
    Value p = SoftmaxOp::create(b, scores.getType(), scores);
    Value y = transpose(b, matmul(b, p, heads(v, count)), {0, 2, 1, 3});
    return linear(reshape(b, y, s), width);
  }

  Value attention() {
    const int64_t batch = size({2, 3, 4, 6}, {4, 6, 8}),
                  length = size({12, 20, 24, 28, 40, 56}, {40, 56, 64, 96}),
                  count = choose.of({2, 3, 4, 6}),
                  width = count * size({8, 12, 16, 20}, {12, 16, 20, 40}),
                  words = size({70, 150, 400}, {300, 900, 2000});
    Value ids = input(
        "ids", RankedTensorType::get({batch, length}, b.getI64Type()), words);
    Value x = GatherOp::create(b, weight({words, width}), ids, 0);
    x = add(b, x, broadcast(b, weight({1, length, width}), shapeOf(x)));
    for (int64_t i = choose.between(1, wide ? 3 : 2); i > 0; --i) {
      x = add(b, x, attend(layerNorm(x), count));
      Value h = activated(linear(layerNorm(x), width * choose.of({2, 3, 4})));
      x = add(b, x, linear(h, width));
    }
    x = layerNorm(x);
    return now() ? x : reshape(b, mean(b, x, {1}), {batch, width});
  }

  //===--------------------------------------------------------------------===//
  // Perceptrons and recurrent cells
  //===--------------------------------------------------------------------===//

  Value perceptron() {
    Value x = input("x", type({size({4, 6, 12, 24, 48, 96}, {24, 64, 120}),
                               size({6, 20, 36, 72, 144}, {200, 480})}));
    const bool soft = now();
    for (int64_t i = choose.between(1, 4); i > 0; --i) {
      Value y = linear(x, size({12, 20, 40, 72, 144, 288}, {360, 560, 800}));
      x = soft ? Value(TanhOp::create(b, y)) : Value(ReluOp::create(b, y));
    }
    return x;
  }

  Value recurrence() {
    const int64_t batch = size({2, 3, 6, 12}, {8, 20, 32}),
                  length = choose.of({5, 7, 10, 14}),
                  width = size({12, 20, 28, 40, 56}, {120, 160, 200});
    Value x = input("x", type({batch, length, choose.of({10, 14, 20, 36})}));
    Value all = linear(transpose(b, x, {1, 0, 2}), 4 * width);
    Value recur = weight({width, 4 * width});
    Value state = splat(b, type({batch, width}), 0), cell = state;
    for (int64_t t = 0; t < length; ++t) {
      Value own =
          reshape(b, slice(b, all, {t, 0, 0}, {1, batch, 4 * width}, {1, 1, 1}),
                  {batch, 4 * width});
      Value gates = add(b, own, matmul(b, state, recur));
      auto gate = [&](int64_t i) {
        return slice(b, gates, {0, i * width}, {batch, width}, {1, 1});
      };
      Value kept = mul(b, SigmoidOp::create(b, gate(0)), cell);
      Value fresh =
          mul(b, SigmoidOp::create(b, gate(1)), TanhOp::create(b, gate(2)));
      cell = add(b, kept, fresh);
      state = mul(b, SigmoidOp::create(b, gate(3)), TanhOp::create(b, cell));
    }
    return state;
  }

  NNBuilder &b;
  ModuleOp module;
  Choices &choose;
  std::vector<SampleInput> &inputs;
  const bool wide;
  func::FuncOp main;
  int weights = 0;
};

} // namespace

SampleProgram writeProgram(MLIRContext &context, Choices &choose, int number,
                           bool wide) {
  const Location loc = UnknownLoc::get(&context);
  SampleProgram program;
  program.module = ModuleOp::create(loc);
  NNBuilder b(loc, &context);
  ModelWriter(b, *program.module, choose, program.inputs, wide).write(number);
  return program;
}

} // namespace pipec
