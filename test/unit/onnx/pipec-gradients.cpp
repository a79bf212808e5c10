//===- pipec-gradients.cpp - gradients of ONNX models in f64 --------------===//
//
// pipec-gradients MODEL.onnx...
//
// Models without inputs; their tensors w0, w1, ... train. The loss is a sum of
// all elements of all float outputs, each with a factor of its own. Prints a
// JSON line a model:
//
//   {"weights": {"w0": {"gradient": LARGEST, "error": LARGEST}}}
//   {"problem": TEXT}
//
// `error` is the largest distance of the gradient that nn-differentiate makes
// from central differences, over the elements tried, relative to the larger of
// 1 and the loss's slopes. Nothing is rounded to f32 anywhere.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Import.h"
#include "dialects/nn/Build.h"
#include "dialects/nn/eval/Evaluate.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Passes.h"
#include "test/unit/onnx/Parameters.h"

#include "mlir/Pass/PassManager.h"

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;
using nlohmann::ordered_json;

namespace {

using Tensors = std::map<std::string, Literal>;

/// What ends the work on one model.
struct Problem {
  std::string text;
};

/// Elements of a weight that are moved.
constexpr size_t kTried = 6;

/// Runs @main op by op; returns the loss, fills the gradients.
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
    if (isa<TrackOp>(op))
      continue;
    if (auto add = dyn_cast<pipe::AccumulateOp>(op)) {
      Literal &sum = (*gradients)[add.getParameter().str()];
      std::vector<double> more = values[add.getGradient()].doubles();
      if (sum)
        for (auto [x, y] : llvm::zip(more, sum.doubles()))
          x += y;
      sum = Literal(tensorType(add.getGradient()), more);
      continue;
    }
    SmallVector<Literal> operands;
    for (Value v : op.getOperands())
      operands.push_back(values[v]);
    auto results = evaluate(&op, operands, {/*round=*/false}, why);
    if (failed(results))
      throw Problem{"cannot evaluate " + op.getName().getStringRef().str() +
                    ": " + why};
    for (auto [v, literal] : llvm::zip(op.getResults(), *results))
      values[v] = literal;
  }
  throw Problem{"@main returns nothing"};
}

/// The outputs become one number.
void attachSum(func::FuncOp main) {
  Operation *ret = main.front().getTerminator();
  NNBuilder b(main.getLoc(), ret);
  Value loss;
  for (Value y : ret->getOperands()) {
    const auto type = tensorType(y);
    if (!isFloat(y) || type.getNumElements() == 0)
      continue;
    std::vector<double> factors(type.getNumElements());
    for (size_t i = 0; i < factors.size(); ++i)
      factors[i] = 0.25 * static_cast<double>(i % 7 + 1) - 0.8;
    const auto wide = RankedTensorType::get(type.getShape(), b.getF64Type());
    Value c =
        ConstantOp::create(b, DenseElementsAttr::get(wide, ArrayRef(factors)));
    auto axes = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
    Value sum =
        nn::reduce(b, "sum", mul(b, nn::cast(b, y, b.getF64Type()), c), axes);
    sum = reshape(b, sum, {});
    loss = loss ? nn::add(b, loss, sum) : sum;
  }
  if (!loss)
    throw Problem{"no output of floating-point numbers"};
  ret->setOperands(loss);
  main.setFunctionType(b.getFunctionType({}, loss.getType()));
  main.setResAttrsAttr({});
}

/// The element is moved both ways, a little.
double slope(func::FuncOp main, Tensors at, const std::string &name,
             size_t element) {
  const Literal tensor = at[name];
  std::vector<double> elements = tensor.doubles();
  const double x = elements[element], h = 1e-6 * std::max(1.0, std::abs(x));
  double losses[2];
  for (int side : {0, 1}) {
    elements[element] = side ? x + h : x - h;
    at[name] = Literal(tensor.getType(), elements);
    losses[side] = run(main, at, nullptr);
  }
  return (losses[1] - losses[0]) / (2 * h);
}

ordered_json compare(func::FuncOp main, const Tensors &at,
                     const Tensors &gradients, const std::string &name) {
  const size_t count = at.at(name).getNumElements();
  std::vector<double> gradient(count);
  if (auto it = gradients.find(name); it != gradients.end())
    gradient = it->second.doubles();
  double largest = 0, error = 0;
  for (double g : gradient)
    largest = std::isnan(g) ? g : std::max(largest, std::abs(g));
  const size_t tried = std::min(count, kTried);
  for (size_t i = 0; i < tried; ++i) {
    const size_t element = i * count / tried;
    const double got = gradient[element], want = slope(main, at, name, element);
    const double off =
        std::abs(got - want) / std::max({1.0, largest, std::abs(want)});
    error = std::isnan(off) ? off : std::max(error, off);
  }
  const auto number = [](double x) {
    return std::isfinite(x) ? ordered_json(x) : ordered_json("NaN");
  };
  return {{"gradient", number(largest)}, {"error", number(error)}};
}

ordered_json check(const std::string &file) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<func::FuncDialect, NNDialect, pipe::PipeDialect>();
  std::string text;
  ScopedDiagnosticHandler collect(&context, [&](mlir::Diagnostic &d) {
    text += d.str() + "\n";
    return success();
  });
  onnx::ImportOptions options;
  options.trainOnly = {"^w[0-9]+$"};
  Diagnostics diagnostics;
  onnx::ImportReport report;
  auto module = onnx::importModel(file, options, context, diagnostics, report);
  if (!module)
    return {{"problem", diagnostics.text("model")}};
  func::FuncOp main = mainFunction(*module);
  if (main.getNumArguments() != 0)
    return {{"problem", "the model has inputs"}};
  attachSum(main);
  const Tensors at = test::readParameters(*module, file);
  auto forward = cast<func::FuncOp>(main->clone());
  PassManager pm(&context);
  pm.addPass(createDifferentiate({.zeroGradients = true}));
  if (failed(pm.run(*module)))
    return {{"problem", text}};
  Tensors gradients;
  run(mainFunction(*module), at, &gradients);
  ordered_json weights = ordered_json::object();
  for (auto parameter : module->getOps<ParameterOp>())
    if (parameter.isTrained()) {
      const std::string name = parameter.getSymName().str();
      weights[name] = compare(forward, at, gradients, name);
    }
  forward->erase();
  return {{"weights", weights}};
}

} // namespace

int main(int argc, char **argv) {
  for (int i = 1; i < argc; ++i) {
    ordered_json line;
    try {
      line = check(argv[i]);
    } catch (const Problem &problem) {
      line = {{"problem", problem.text}};
    } catch (const Failure &failure) {
      line = {{"problem", failure.what()}};
    }
    std::cout << line.dump(-1, ' ', false,
                           ordered_json::error_handler_t::replace)
              << "\n";
  }
  return 0;
}
