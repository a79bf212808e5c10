//===- GradientTest.cpp - gradients against central differences in f64 ----===//
//
// Each case becomes a tiny model whose operands are trained weights. The
// gradient graph that nn-differentiate makes is run by the evaluator and
// compared with differences of the forward graph.
//
//===----------------------------------------------------------------------===//
#include "GradientCases.h"

#include "dialects/nn/Build.h"
#include "dialects/nn/eval/Evaluate.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

#include <cmath>
#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

namespace {

using Tensors = std::map<std::string, Literal>;

/// Runs @main op by op; returns the loss and fills the accumulated gradients.
double run(func::FuncOp main, const Tensors &parameters, Tensors *gradients) {
  llvm::DenseMap<Value, Literal> values;
  std::string why;
  for (Operation &op : main.front()) {
    if (auto ret = dyn_cast<func::ReturnOp>(op))
      return values[ret.getOperand(0)].doubles()[0];
    if (auto weight = dyn_cast<WeightOp>(op)) {
      values[weight.getY()] = parameters.at(weight.getParameter().str());
      continue;
    }
    if (auto add = dyn_cast<pipe::AccumulateOp>(op)) {
      EXPECT_TRUE(gradients);
      (*gradients)[add.getParameter().str()] = values[add.getGradient()];
      continue;
    }
    SmallVector<Literal> operands;
    for (Value v : op.getOperands())
      operands.push_back(values[v]);
    auto results = evaluate(&op, operands, {/*round=*/false}, why);
    if (failed(results)) {
      ADD_FAILURE() << "cannot evaluate " << op.getName().getStringRef().str()
                    << ": " << why;
      return NAN;
    }
    for (auto [v, literal] : llvm::zip(op.getResults(), *results))
      values[v] = literal;
  }
  return NAN;
}

class Gradient : public testing::TestWithParam<GradientCase> {
protected:
  Gradient() {
    context.loadDialect<func::FuncDialect, NNDialect, pipe::PipeDialect>();
  }

  /// loss = sum(y * c) with c = 1, 2, 3, … scaled, so that every element counts
  /// differently.
  OwningOpRef<ModuleOp> build(const GradientCase &c) {
    std::string text;
    for (size_t i = 0; i < c.shapes.size(); ++i)
      text += "nn.parameter @p" + std::to_string(i) + " : tensor<" +
              c.shapes[i] +
              "xf64> {role = \"weight\", file = 0 : i64, offset "
              "= 0 : i64, length = 8 : i64}\n";
    text += "func.func @main() -> tensor<f64> {\n";
    for (size_t i = 0; i < c.shapes.size(); ++i)
      text += "%" + std::to_string(i) + " = nn.weight @p" + std::to_string(i) +
              " : tensor<" + c.shapes[i] + "xf64>\n";
    text += c.body + "\n%loss = nn.constant dense<0.0> : tensor<f64>\n"
                     "\"func.return\"(%loss) {y = \"here\"} : (tensor<f64>) -> "
                     "()\n}\n";
    auto module = parseSourceString<ModuleOp>(text, &context);
    if (module)
      attachLoss(*module);
    return module;
  }

  void attachLoss(ModuleOp module) {
    func::FuncOp main = mainFunction(module);
    Operation *ret = main.front().getTerminator();
    Operation *zero = ret->getPrevNode();
    Operation *last = zero->getPrevNode();
    NNBuilder b(main.getLoc(), ret);
    Value y = last->getResult(0);
    int64_t n = tensorType(y).getNumElements();
    std::vector<double> pattern(n);
    for (int64_t i = 0; i < n; ++i)
      pattern[i] = 0.25 * static_cast<double>(i % 7 + 1) - 0.8;
    Value c = ConstantOp::create(
        b, DenseElementsAttr::get(tensorType(y), ArrayRef(pattern)));
    auto axes = llvm::to_vector(llvm::seq<int64_t>(0, tensorType(y).getRank()));
    Value sum = nn::reduce(b, "sum", mul(b, y, c), axes);
    ret->setOperand(0, reshape(b, sum, {}));
    zero->erase();
  }

  Tensors draw(ModuleOp module, const GradientCase &c) {
    const double golden = (std::sqrt(5.0) - 1) / 2; // as torch_gradients.py
    Tensors tensors;
    int operand = 0;
    for (auto parameter : module.getOps<ParameterOp>()) {
      std::vector<double> elements(parameter.getTensorType().getNumElements());
      for (auto [j, x] : llvm::enumerate(elements))
        x = c.low + (c.high - c.low) *
                        std::fmod(golden * double(j + 1 + 17 * operand), 1.0);
      ++operand;
      tensors[parameter.getSymName().str()] =
          Literal(parameter.getTensorType(), elements);
    }
    return tensors;
  }

  MLIRContext context;
};

TEST_P(Gradient, EqualsCentralDifferences) {
  OwningOpRef<ModuleOp> module = build(GetParam());
  ASSERT_TRUE(module);
  Tensors at = draw(*module, GetParam());
  func::FuncOp forward = cast<func::FuncOp>(mainFunction(*module)->clone());

  PassManager pm(&context);
  pm.addPass(createDifferentiate({.zeroGradients = true}));
  ASSERT_TRUE(succeeded(pm.run(*module)));
  Tensors gradients;
  run(mainFunction(*module), at, &gradients);

  const double h = 1e-6;
  for (auto &[name, tensor] : at) {
    ASSERT_TRUE(gradients.count(name)) << "no gradient for " << name;
    std::vector<double> got = gradients[name].doubles();
    std::vector<double> elements = tensor.doubles();
    for (size_t i = 0; i < elements.size(); ++i) {
      auto lossAt = [&](double x) {
        std::vector<double> moved = elements;
        moved[i] = x;
        Tensors there = at;
        there[name] = Literal(tensor.getType(), moved);
        return run(forward, there, nullptr);
      };
      double want =
          (lossAt(elements[i] + h) - lossAt(elements[i] - h)) / (2 * h);
      EXPECT_NEAR(got[i], want, 1e-7 * std::max(1.0, std::abs(want)))
          << name << "[" << i << "] at " << elements[i];
    }
  }
  forward->erase();
}

TEST_P(Gradient, EqualsPyTorch) {
  std::ifstream file(TORCH_GRADIENTS);
  auto all = nlohmann::json::parse(file);
  if (!all.contains(GetParam().name))
    GTEST_SKIP() << "no PyTorch value";
  const auto &want = all[GetParam().name];
  OwningOpRef<ModuleOp> module = build(GetParam());
  ASSERT_TRUE(module);
  Tensors at = draw(*module, GetParam());
  PassManager pm(&context);
  pm.addPass(createDifferentiate());
  ASSERT_TRUE(succeeded(pm.run(*module)));
  Tensors gradients;
  double value = run(mainFunction(*module), at, &gradients);
  EXPECT_NEAR(value, want["value"].get<double>(), 1e-12);
  for (size_t i = 0; i < GetParam().shapes.size(); ++i) {
    std::vector<double> got = gradients["p" + std::to_string(i)].doubles();
    auto expected = want["gradients"][i].get<std::vector<double>>();
    ASSERT_EQ(got.size(), expected.size());
    for (size_t j = 0; j < got.size(); ++j)
      EXPECT_NEAR(got[j], expected[j],
                  1e-10 * std::max(1.0, std::abs(expected[j])))
          << "operand " << i << "[" << j << "]";
  }
}

INSTANTIATE_TEST_SUITE_P(EveryOp, Gradient, testing::ValuesIn(gradientCases()),
                         [](const testing::TestParamInfo<GradientCase> &info) {
                           std::string name = info.param.name;
                           for (char &c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c)))
                               c = '_';
                           return name;
                         });

/// A differentiable op without a case is a gap in this file.
TEST(GradientCases, CoverEveryDifferentiableOp) {
  MLIRContext context;
  context.loadDialect<NNDialect>();
  std::string all;
  for (const GradientCase &c : gradientCases())
    all += c.body + "\n";
  // Zero gradient by definition, or the identity between float types.
  const std::set<std::string> exempt = {"nn.floor",         "nn.ceil",
                                        "nn.round",         "nn.sign",
                                        "nn.stop_gradient", "nn.cast"};
  for (RegisteredOperationName op : context.getRegisteredOperations()) {
    std::string name = op.getStringRef().str();
    if (op.hasInterface<Differentiable>() && !exempt.count(name))
      EXPECT_NE(all.find(name + " "), std::string::npos) << name;
  }
}

} // namespace
