//===- LossTest.cpp - losses and their gradients against PyTorch ----------===//
//
// nn-attach-loss on logits that are a trained weight, so that the gradient of
// the loss with respect to the logits is what accumulates.
//
//===----------------------------------------------------------------------===//
#include "dialects/nn/eval/Evaluate.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

namespace {

struct LossCase {
  const char *name;                     ///< in torch_losses.json
  const char *kind, *logits, *argument; ///< argument: of @main, or nothing
  double smoothing = 0;
  std::vector<double> weights = {};
  double posWeight = 1;
};

class Loss : public testing::TestWithParam<LossCase> {
protected:
  Loss() {
    context.loadDialect<func::FuncDialect, NNDialect, pipe::PipeDialect>();
  }
  MLIRContext context;
};

Literal literalOf(const nlohmann::json &values, RankedTensorType type) {
  if (isa<FloatType>(type.getElementType()))
    return Literal(type, values.get<std::vector<double>>());
  return Literal(type, values.get<std::vector<int64_t>>());
}

TEST_P(Loss, EqualsPyTorch) {
  const LossCase &c = GetParam();
  std::ifstream file(TORCH_LOSSES);
  auto want = nlohmann::json::parse(file).at(c.name);
  std::string text =
      "nn.parameter @x : tensor<" + std::string(c.logits) +
      "> {role = \"weight\", file = 0 : i64, offset = 0 : i64, "
      "length = 8 : i64}\nfunc.func @main(" +
      c.argument + ") -> (tensor<" + c.logits +
      "> {nn.name = \"logits\"}) {\n%0 = nn.weight @x : tensor<" + c.logits +
      ">\nreturn %0 : tensor<" + c.logits + ">\n}\n";
  auto module = parseSourceString<ModuleOp>(text, &context);
  ASSERT_TRUE(module);
  AttachLossOptions options;
  options.kind = c.kind;
  options.labelSmoothing = c.smoothing;
  options.classWeights.assign(c.weights.begin(), c.weights.end());
  options.posWeight = c.posWeight;
  PassManager pm(&context);
  pm.addPass(createAttachLoss(options));
  pm.addPass(createDifferentiate());
  ASSERT_TRUE(succeeded(pm.run(*module)));

  func::FuncOp main = mainFunction(*module);
  llvm::DenseMap<Value, Literal> values;
  ASSERT_EQ(main.getNumArguments(), 1u);
  values[main.getArgument(0)] =
      literalOf(want["label"], tensorType(main.getArgument(0)));
  std::string why;
  Literal gradient;
  double loss = NAN;
  for (Operation &op : main.front()) {
    if (auto ret = dyn_cast<func::ReturnOp>(op)) {
      loss = values[ret.getOperand(0)].doubles()[0];
    } else if (auto weight = dyn_cast<WeightOp>(op)) {
      values[weight.getY()] =
          literalOf(want["logits"], tensorType(weight.getY()));
    } else if (auto add = dyn_cast<pipe::AccumulateOp>(op)) {
      gradient = values[add.getGradient()];
    } else {
      SmallVector<Literal> operands;
      for (Value v : op.getOperands())
        operands.push_back(values[v]);
      auto results = evaluate(&op, operands, {/*round=*/false}, why);
      ASSERT_TRUE(succeeded(results)) << why;
      for (auto [v, l] : llvm::zip(op.getResults(), *results))
        values[v] = l;
    }
  }
  EXPECT_NEAR(loss, want["loss"].get<double>(), 1e-12);
  std::vector<double> got = gradient.doubles();
  auto expected = want["gradient"].get<std::vector<double>>();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-12) << i;
}

const LossCase kCases[] = {
    {"cross_entropy", "cross-entropy", "4x5xf64", ""},
    {"cross_entropy_sequence", "cross-entropy", "2x3x5xf64", ""},
    {"cross_entropy_image", "cross-entropy", "2x5x2x3xf64", ""},
    {"next_token", "next-token", "2x4x6xf64",
     "%ids: tensor<2x4xi64> {nn.name = \"input_ids\"}"},
    {"mse", "mse", "2x3xf64", ""},
    {"bce", "bce", "2x3xf64", ""},
    {"cross_entropy_smooth", "cross-entropy", "4x5xf64", "", 0.1},
    {"cross_entropy_weighted",
     "cross-entropy",
     "4x5xf64",
     "",
     0,
     {1, 2, 0.5, 0, 3}},
    {"cross_entropy_both",
     "cross-entropy",
     "2x5x2x3xf64",
     "",
     0.2,
     {1, 2, 0.5, 0, 3}},
    {"next_token_smooth", "next-token", "2x4x6xf64",
     "%ids: tensor<2x4xi64> {nn.name = \"input_ids\"}", 0.1},
    {"bce_weighted", "bce", "2x3xf64", "", 0, {}, 2.5},
};

INSTANTIATE_TEST_SUITE_P(EveryKind, Loss, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<LossCase> &info) {
                           return std::string(info.param.name);
                         });

} // namespace
