//===- FactorsTest.cpp - an op on slices is the op, sliced ----------------===//
//
// Every op of the gradients' cases is divided along each of its factors: each
// device evaluates it on its slices, and the results put together are those of
// the whole op. So are the gradients, with what was put together as results.
//
//===----------------------------------------------------------------------===//
#include "GradientCases.h"

#include "dialects/nn/Factors.h"
#include "dialects/nn/eval/Evaluate.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

namespace {

using Literals = SmallVector<Literal>;

/// The places of slice `part` of `parts` along `dim`, in row-major order.
std::vector<size_t> places(ArrayRef<int64_t> shape, int dim, int64_t part,
                           int64_t parts) {
  int64_t inner = 1, all = 1;
  for (auto [d, size] : llvm::enumerate(shape)) {
    all *= size;
    inner *= static_cast<int>(d) > dim ? size : 1;
  }
  std::vector<size_t> found;
  for (int64_t i = 0; i < all; ++i)
    if (i / inner % shape[dim] / (shape[dim] / parts) == part)
      found.push_back(i);
  return found;
}

RankedTensorType slicedType(RankedTensorType type, int dim, int64_t parts) {
  SmallVector<int64_t> shape(type.getShape());
  if (dim >= 0)
    shape[dim] /= parts;
  return RankedTensorType::get(shape, type.getElementType());
}

template <typename T>
Literal take(const Literal &whole, RankedTensorType type,
             const std::vector<T> &elements, const std::vector<size_t> &at) {
  std::vector<T> taken;
  for (size_t i : at)
    taken.push_back(elements[i]);
  return Literal(type, taken);
}

Literal slice(const Literal &whole, int dim, int64_t part, int64_t parts) {
  if (dim < 0)
    return whole;
  const auto at = places(whole.getShape(), dim, part, parts);
  RankedTensorType type = slicedType(whole.getType(), dim, parts);
  return whole.isFloat() ? take(whole, type, whole.doubles(), at)
                         : take(whole, type, whole.integers(), at);
}

/// What devices have, put together along `dim`, or added.
std::vector<double> together(const Literals &parts, int dim,
                             RankedTensorType type) {
  std::vector<double> whole(type.getNumElements(), 0);
  for (auto [p, literal] : llvm::enumerate(parts)) {
    std::vector<double> own;
    if (literal.isFloat())
      own = literal.doubles();
    else
      for (int64_t i : literal.integers())
        own.push_back(static_cast<double>(i));
    const auto at = dim < 0 ? std::vector<size_t>()
                            : places(type.getShape(), dim, p, parts.size());
    for (size_t i = 0; i < own.size(); ++i) {
      double &x = whole[dim < 0 ? i : at[i]];
      x = dim >= 0 ? own[i] : x + own[i];
    }
  }
  return whole;
}

class Factors : public testing::TestWithParam<GradientCase> {
protected:
  Factors() : b(&context) {
    context.loadDialect<func::FuncDialect, NNDialect>();
  }

  /// The op on slices, with nothing of its operands but their types.
  Operation *local(Operation *op, const Factor &f, int64_t parts) {
    OperationState state(op->getLoc(), op->getName().getStringRef());
    for (auto [v, d] : llvm::zip(op->getOperands(), f.operands))
      state.operands.push_back(function.front().addArgument(
          slicedType(tensorType(v), d, parts), op->getLoc()));
    for (auto [v, d] : llvm::zip(op->getResults(), f.results))
      state.types.push_back(slicedType(tensorType(v), d, parts));
    state.attributes = op->getAttrDictionary().getValue();
    state.propertiesAttr = op->getPropertiesAsAttribute();
    return b.create(state);
  }

  Literals evaluateOp(Operation *op, ArrayRef<Literal> operands) {
    std::string why;
    auto results = evaluate(op, operands, {/*round=*/false}, why);
    EXPECT_TRUE(succeeded(results)) << why;
    return succeeded(results) ? *results : Literals();
  }

  /// Gradients of the operands for those of the results; empty where there are
  /// none.
  Literals gradients(Operation *op, ArrayRef<Literal> operands,
                     ArrayRef<Literal> results, ArrayRef<Literal> incoming) {
    llvm::DenseMap<Value, Literal> values;
    for (auto [v, literal] : llvm::zip(op->getOperands(), operands))
      values[v] = literal;
    for (auto [v, literal] : llvm::zip(op->getResults(), results))
      values[v] = literal;
    SmallVector<Value> grads, wanted(op->getNumOperands());
    for (const Literal &g : incoming) {
      grads.push_back(
          g ? function.front().addArgument(g.getType(), op->getLoc())
            : Value());
      if (g)
        values[grads.back()] = g;
    }
    llvm::BitVector needed(op->getNumOperands());
    for (auto [i, v] : llvm::enumerate(op->getOperands()))
      needed[i] = isFloat(v);
    ImplicitLocOpBuilder builder(op->getLoc(), &context);
    builder.setInsertionPointAfter(op);
    cast<Differentiable>(op).backward(builder, grads, needed, wanted);
    for (Operation *next = op->getNextNode(); next;
         next = next->getNextNode()) {
      Literals of;
      for (Value v : next->getOperands())
        of.push_back(values[v]);
      for (auto [v, literal] :
           llvm::zip(next->getResults(), evaluateOp(next, of)))
        values[v] = literal;
    }
    Literals found;
    for (Value v : wanted)
      found.push_back(v ? values[v] : Literal());
    return found;
  }

  void expectSame(const std::vector<double> &got, const Literal &want,
                  const std::string &what) {
    std::vector<double> elements;
    if (want.isFloat())
      elements = want.doubles();
    else
      for (int64_t i : want.integers())
        elements.push_back(static_cast<double>(i));
    ASSERT_EQ(got.size(), elements.size()) << what;
    for (size_t i = 0; i < got.size(); ++i)
      if (got[i] != elements[i] &&
          !(std::isnan(got[i]) && std::isnan(elements[i])))
        EXPECT_NEAR(got[i], elements[i], 1e-9 * (1 + std::abs(elements[i])))
            << what << " [" << i << "]";
  }

  void check(Operation *op, const Factor &f, ArrayRef<Literal> operands,
             ArrayRef<Literal> results);
  void checkGradients(Operation *op, const Factor &f,
                      ArrayRef<Literal> operands, ArrayRef<Literal> results,
                      int64_t parts);

  MLIRContext context;
  OpBuilder b;
  Region function;
};

void Factors::checkGradients(Operation *op, const Factor &f,
                             ArrayRef<Literal> operands,
                             ArrayRef<Literal> results, int64_t parts) {
  Literals incoming;
  for (const Literal &y : results) {
    std::vector<double> g(y.getNumElements());
    for (size_t i = 0; i < g.size(); ++i)
      g[i] = 0.25 * static_cast<double>(i % 7 + 1) - 0.8;
    // Only first results of ops with several have gradients.
    incoming.push_back(y.isFloat() && incoming.empty() ? Literal(y.getType(), g)
                                                       : Literal());
  }
  function.emplaceBlock();
  b.setInsertionPointToStart(&function.front());
  const Factor none{1, SmallVector<int>(op->getNumOperands(), Factor::kNone),
                    SmallVector<int>(op->getNumResults(), Factor::kNone)};
  const Literals whole =
      gradients(local(op, none, 1), operands, results, incoming);
  std::vector<Literals> own(op->getNumOperands());
  for (int64_t p = 0; p < parts; ++p) {
    Block *block = &function.emplaceBlock();
    block->moveBefore(&function.front());
    b.setInsertionPointToStart(block);
    Literals of, made, back;
    for (auto [literal, d] : llvm::zip(operands, f.operands))
      of.push_back(slice(literal, d, p, parts));
    for (auto [literal, d] : llvm::zip(results, f.results))
      made.push_back(slice(literal, d, p, parts));
    for (auto [literal, d] : llvm::zip(incoming, f.results))
      back.push_back(literal ? slice(literal, d, p, parts) : literal);
    const Literals found = gradients(local(op, f, parts), of, made, back);
    for (auto [k, literal] : llvm::enumerate(found))
      if (literal)
        own[k].push_back(literal);
  }
  for (auto [k, want] : llvm::enumerate(whole)) {
    ASSERT_EQ(own[k].size(), want ? parts : 0);
    if (want)
      expectSame(together(own[k], f.operands[k], want.getType()), want,
                 "gradient of operand " + std::to_string(k));
  }
  function.getBlocks().clear();
}

void Factors::check(Operation *op, const Factor &f, ArrayRef<Literal> operands,
                    ArrayRef<Literal> results) {
  int64_t parts = 2;
  while (f.size % parts)
    ++parts;
  std::vector<Literals> own(results.size());
  for (int64_t p = 0; p < parts; ++p) {
    function.emplaceBlock();
    b.setInsertionPointToStart(&function.front());
    Literals of;
    for (auto [literal, d] : llvm::zip(operands, f.operands))
      of.push_back(slice(literal, d, p, parts));
    for (auto [r, literal] :
         llvm::enumerate(evaluateOp(local(op, f, parts), of)))
      own[r].push_back(literal);
    function.getBlocks().clear();
  }
  for (auto [r, want] : llvm::enumerate(results))
    expectSame(together(own[r], f.results[r], want.getType()), want,
               "result " + std::to_string(r));
  if (isa<Differentiable>(op))
    checkGradients(op, f, operands, results, parts);
}

TEST_P(Factors, SlicesOfAnOpAreTheOpOfSlices) {
  const GradientCase &c = GetParam();
  std::string text = "func.func @f(";
  for (auto [i, shape] : llvm::enumerate(c.shapes))
    text += std::string(i ? ", " : "") + "%" + std::to_string(i) + ": tensor<" +
            shape + "xf64>";
  text += ") {\n" + c.body + "\nfunc.return\n}\n";
  auto module = parseSourceString<ModuleOp>(text, &context);
  ASSERT_TRUE(module);
  func::FuncOp f = *module->getOps<func::FuncOp>().begin();
  llvm::DenseMap<Value, Literal> values;
  for (auto [k, v] : llvm::enumerate(f.getArguments())) {
    std::vector<double> elements(tensorType(v).getNumElements());
    for (auto [j, x] : llvm::enumerate(elements))
      x = c.low + (c.high - c.low) *
                      std::fmod(0.6180339887 * double(j + 1 + 17 * k), 1.0);
    values[v] = Literal(tensorType(v), elements);
  }
  for (Operation &op : f.front().without_terminator()) {
    Literals operands;
    for (Value v : op.getOperands())
      operands.push_back(values[v]);
    const Literals results = evaluateOp(&op, operands);
    for (auto [v, literal] : llvm::zip(op.getResults(), results))
      values[v] = literal;
    for (const Factor &factor : factorsOf(&op)) {
      SCOPED_TRACE(op.getName().getStringRef().str() + ", factor of " +
                   std::to_string(factor.size));
      check(&op, factor, operands, results);
    }
  }
}

/// Rows, columns and what is summed; channels in the same way.
TEST(FactorsOf, ProductsAndConvolutions) {
  MLIRContext context;
  context.loadDialect<func::FuncDialect, NNDialect>();
  auto module = parseSourceString<ModuleOp>(
      R"(func.func @f(%0: tensor<2x4x6xf32>, %1: tensor<2x8x6xf32>,
                      %2: tensor<2x3x9x9xf32>, %3: tensor<5x3x3x3xf32>) {
        %y = nn.matmul %0, %1 {transpose_b}
          : (tensor<2x4x6xf32>, tensor<2x8x6xf32>) -> tensor<2x4x8xf32>
        %z = nn.conv %2, %3 {strides = array<i64: 1, 1>,
          dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>,
          pads_high = array<i64: 0, 0>, groups = 1 : i64}
          : (tensor<2x3x9x9xf32>, tensor<5x3x3x3xf32>) -> tensor<2x5x7x7xf32>
        func.return })",
      &context);
  ASSERT_TRUE(module);
  func::FuncOp f = *module->getOps<func::FuncOp>().begin();
  Block &body = f.front();
  const int none = Factor::kNone;
  const SmallVector<Factor> product{{2, {0, 0}, {0}},
                                    {4, {1, none}, {1}},
                                    {8, {none, 1}, {2}},
                                    {6, {2, 2}, {none}, true}};
  EXPECT_EQ(factorsOf(&body.front()), product);
  const SmallVector<Factor> convolution{
      {2, {0, none}, {0}}, {5, {none, 0}, {1}}, {3, {1, 1}, {none}, true}};
  EXPECT_EQ(factorsOf(body.front().getNextNode()), convolution);
}

/// Where the largest number is on two devices, each of them counts one place
/// that shares the gradient: half of what there are.
TEST(FactorsOf, AMaximumIsNotDividedWhereItReduces) {
  MLIRContext context;
  context.loadDialect<func::FuncDialect, NNDialect>();
  for (const char *kind : {"max", "min", "prod"}) {
    auto module = parseSourceString<ModuleOp>(
        R"(func.func @f(%0: tensor<4x6xf32>) {
          %y = nn.reduce %0 {kind = ")" +
            std::string(kind) + R"(", axes = array<i64: 1>}
            : (tensor<4x6xf32>) -> tensor<4x1xf32>
          func.return })",
        &context);
    ASSERT_TRUE(module);
    func::FuncOp f = *module->getOps<func::FuncOp>().begin();
    const SmallVector<Factor> rows{{4, {0}, {0}}};
    EXPECT_EQ(factorsOf(&f.front().front()), rows);
  }
}

INSTANTIATE_TEST_SUITE_P(AllOps, Factors, testing::ValuesIn(gradientCases()),
                         [](const auto &info) {
                           std::string name = info.param.name;
                           for (char &c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c)))
                               c = '_';
                           return name;
                         });

} // namespace
