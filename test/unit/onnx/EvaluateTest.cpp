//===- EvaluateTest.cpp - literals and the evaluator ----------------------===//
#include "Support.h"
#include "dialects/nn/Build.h"
#include "mlir/Parser/Parser.h"

#include <cmath>

using namespace mlir;
using namespace pipec;
using pipec::nn::Literal;

namespace {

struct Evaluator : testing::Test {
  Evaluator() : context(MLIRContext::Threading::DISABLED) {
    context.loadDialect<func::FuncDialect, nn::NNDialect>();
  }
  RankedTensorType f32(ArrayRef<int64_t> shape) {
    return RankedTensorType::get(shape, Float32Type::get(&context));
  }
  Literal floats(ArrayRef<int64_t> shape, std::vector<double> values) {
    return {f32(shape), std::move(values)};
  }

  /// The results of a function body over the inputs %a, %b, ...
  SmallVector<Literal> run(const std::string &body,
                           const std::vector<Literal> &inputs,
                           bool round = true) {
    std::string text = "func.func @main(";
    for (size_t i = 0; i < inputs.size(); ++i)
      text += std::string(i ? ", %" : "%") + static_cast<char>('a' + i) + ": " +
              onnxType(inputs[i]);
    text += ") -> ";
    const size_t result = body.rfind("return");
    const size_t colon = body.find(": ", result);
    text += body.substr(colon + 2) + " {\n" + body + "\n}";
    module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module) << text;
    std::string why;
    nn::EvaluateOptions options;
    options.round = round;
    const auto out = nn::evaluate(
        module->lookupSymbol<func::FuncOp>("main"), inputs,
        [](StringRef) { return Literal(); }, options, why);
    error = why;
    return succeeded(out) ? out->outputs : SmallVector<Literal>();
  }
  static std::string onnxType(const Literal &v) {
    std::string text;
    llvm::raw_string_ostream(text) << v.getType();
    return text;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  std::string error;
};

} // namespace

TEST_F(Evaluator, ViewsShareElements) {
  const Literal x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(x.reshaped({3, 2}).getStorage(), x.getStorage());
  const Literal wide = floats({1, 3}, {1, 2, 3}).broadcastTo({4, 3});
  EXPECT_EQ(wide.getStoredElements(), 3);
  EXPECT_EQ(wide.doubles(),
            (std::vector<double>{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(wide.compressed().getShape(), ArrayRef<int64_t>({1, 3}));
  // Splitting a repeated dimension needs no copy; joining it with another does.
  EXPECT_TRUE(wide.canReshapeAsView({2, 2, 3}));
  EXPECT_FALSE(wide.canReshapeAsView({12}));
  EXPECT_EQ(wide.reshaped({12}).doubles(), wide.doubles());
}

TEST_F(Evaluator, AttributesRoundTrip) {
  const auto check = [](const Literal &x) {
    const Literal back = Literal::fromAttr(x.toAttr());
    EXPECT_EQ(back.getType(), x.getType());
    EXPECT_EQ(back.doubles(), x.doubles());
  };
  check(floats({2, 2}, {1, -2.5, INFINITY, 0}));
  check(Literal::splat(f32({3}), 7));
  Builder b(&context);
  for (const Type element :
       {Type(b.getI1Type()), Type(b.getI64Type()), Type(b.getI32Type()),
        Type(b.getIntegerType(8, /*isSigned=*/false))})
    check(Literal(RankedTensorType::get({2}, element),
                  std::vector<int64_t>{0, 1}));
  check(Literal(RankedTensorType::get({2}, b.getIntegerType(8, false)),
                std::vector<int64_t>{200, 255}));
  check(Literal(RankedTensorType::get({2}, b.getF16Type()),
                std::vector<double>{0.5, -1024}));
}

TEST_F(Evaluator, RoundsToTheElementType) {
  const Literal x = floats({1}, {static_cast<float>(0.1)});
  const std::string body = "%y = nn.mul %a, %a : (tensor<1xf32>, tensor<1xf32>)"
                           " -> tensor<1xf32>\n return %y : tensor<1xf32>";
  const auto exact = static_cast<double>(0.1f) * static_cast<double>(0.1f);
  EXPECT_EQ(run(body, {x})[0].doubles()[0], static_cast<float>(exact));
  EXPECT_EQ(run(body, {x}, /*round=*/false)[0].doubles()[0], exact);
}

TEST_F(Evaluator, NanWinsInMaxima) {
  const Literal x = floats({3}, {NAN, -INFINITY, 2}),
                y = floats({3}, {1, 1, 1});
  const auto out = run(
      "%m = nn.max %a, %b : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>\n"
      "return %m : tensor<3xf32>",
      {x, y});
  EXPECT_TRUE(std::isnan(out[0].doubles()[0]));
  EXPECT_EQ(out[0].doubles()[1], 1);
  EXPECT_EQ(out[0].doubles()[2], 2);
}

TEST_F(Evaluator, SelectChoosesWithoutArithmetic) {
  const Literal x = floats({3}, {NAN, -INFINITY, 2}),
                y = floats({3}, {1, 1, 1});
  const auto out = run(
      "%n = nn.is_nan %a : (tensor<3xf32>) -> tensor<3xi1>\n"
      "%s = nn.select %n, %b, %a : (tensor<3xi1>, tensor<3xf32>, tensor<3xf32>)"
      " -> tensor<3xf32>\n return %s : tensor<3xf32>",
      {x, y});
  EXPECT_EQ(out[0].doubles(), (std::vector<double>{1, -INFINITY, 2}));
}

TEST_F(Evaluator, GatherRefusesIndicesOutOfRange) {
  const Literal x = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  const auto index = RankedTensorType::get({2}, IntegerType::get(&context, 64));
  const std::string body = "%y = nn.gather %a, %b {axis = 0 : i64} : "
                           "(tensor<3x2xf32>, tensor<2xi64>)"
                           " -> tensor<2x2xf32>\n return %y : tensor<2x2xf32>";
  EXPECT_EQ(
      run(body, {x, Literal(index, std::vector<int64_t>{-1, 0})})[0].doubles(),
      (std::vector<double>{5, 6, 1, 2}));
  EXPECT_TRUE(
      run(body, {x, Literal(index, std::vector<int64_t>{3, 0})}).empty());
  EXPECT_EQ(error, "index 3 is outside of 3 elements");
}

TEST_F(Evaluator, ScatterAddIsTheTransposeOfGather) {
  const Literal updates = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  const auto index = RankedTensorType::get({3}, IntegerType::get(&context, 64));
  const auto out =
      run("%y = nn.scatter_add %b, %a {axis = 0 : i64} : (tensor<3xi64>,"
          " tensor<3x2xf32>) -> tensor<4x2xf32>\n return %y : tensor<4x2xf32>",
          {updates, Literal(index, std::vector<int64_t>{1, -1, 1})});
  EXPECT_EQ(out[0].doubles(), (std::vector<double>{0, 0, 6, 8, 0, 0, 3, 4}));
}

TEST_F(Evaluator, PadAndSliceUndoEachOther) {
  const Literal x = floats({2, 2}, {1, 2, 3, 4});
  const auto out =
      run("%p = nn.pad %a {low = array<i64: 1, 0>, high = array<i64: 0, 1>,"
          " interior = array<i64: 1, 0>, value = 9.0 : f64}"
          " : (tensor<2x2xf32>) -> tensor<4x3xf32>\n"
          "return %p : tensor<4x3xf32>",
          {x});
  EXPECT_EQ(out[0].doubles(),
            (std::vector<double>{9, 9, 9, 1, 2, 9, 9, 9, 9, 3, 4, 9}));
}

TEST_F(Evaluator, ConvolutionAndItsGradientsAgree) {
  // <dy, conv(x, w)> = <x, dx> = <w, dw> for any x, w, dy.
  std::vector<double> xs, ws, ds;
  for (int i = 0; i < 2 * 4 * 5; ++i)
    xs.push_back(std::sin(i));
  for (int i = 0; i < 6 * 2 * 3; ++i)
    ws.push_back(std::cos(3 * i));
  for (int i = 0; i < 2 * 6 * 3; ++i)
    ds.push_back(std::sin(7 * i));
  const Literal x = floats({2, 4, 5}, xs), w = floats({6, 2, 3}, ws),
                d = floats({2, 6, 3}, ds);
  const std::string window =
      "{strides = array<i64: 2>, dilations = array<i64: 1>, pads_low = "
      "array<i64: 1>, pads_high = array<i64: 1>, groups = 2 : i64}";
  const auto dot = [](const Literal &p, const Literal &q) {
    double sum = 0;
    const auto a = p.doubles(), b = q.doubles();
    for (size_t i = 0; i < a.size(); ++i)
      sum += a[i] * b[i];
    return sum;
  };
  const Literal y = run("%y = nn.conv %a, %b " + window +
                            " : (tensor<2x4x5xf32>, tensor<6x2x3xf32>) -> "
                            "tensor<2x6x3xf32>\n return %y : tensor<2x6x3xf32>",
                        {x, w}, false)[0];
  const Literal dx =
      run("%y = nn.conv_grad_input %a, %b " + window +
              " : (tensor<2x6x3xf32>, tensor<6x2x3xf32>) -> "
              "tensor<2x4x5xf32>\n return %y : tensor<2x4x5xf32>",
          {d, w}, false)[0];
  const Literal dw =
      run("%y = nn.conv_grad_weight %a, %b " + window +
              " : (tensor<2x4x5xf32>, tensor<2x6x3xf32>) -> "
              "tensor<6x2x3xf32>\n return %y : tensor<6x2x3xf32>",
          {x, d}, false)[0];
  EXPECT_NEAR(dot(d, y), dot(x, dx), 1e-9);
  EXPECT_NEAR(dot(d, y), dot(w, dw), 1e-9);
}

TEST_F(Evaluator, PoolingIndicesPointAtTheMaximum) {
  const Literal x = floats({1, 1, 5}, {1, 5, 5, 2, 7});
  const auto y =
      run("%y, %i = nn.max_pool %a {kernel = array<i64: 3>, strides = "
          "array<i64: 2>,"
          " dilations = array<i64: 1>, pads_low = array<i64: 0>, pads_high = "
          "array<i64: 0>} : (tensor<1x1x5xf32>) -> (tensor<1x1x2xf32>, "
          "tensor<1x1x2xi32>)\n return %i : tensor<1x1x2xi32>",
          {x});
  EXPECT_EQ(y[0].integers(), (std::vector<int64_t>{1, 4}));
}
