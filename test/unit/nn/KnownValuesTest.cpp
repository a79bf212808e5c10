//===- KnownValuesTest.cpp ------------------------------------------------===//
#include "passes/KnownValues.h"

#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

/// Each layer may make its own mask: what is alike is computed and kept once,
/// whatever stage it is on; what differs in its operands, its attributes or its
/// type is not.
TEST(KnownValues, OpsThatAreAlikeShareOne) {
  MLIRContext context;
  context.loadDialect<func::FuncDialect, NNDialect>();
  auto module = parseSourceString<ModuleOp>(R"(
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %a = nn.constant dense<[1.0, 2.0]> : tensor<2xf32>
      %b = nn.constant dense<[1.0, 2.0]> : tensor<2xf32>
      %c = nn.constant dense<[1.0, 3.0]> : tensor<2xf32>
      %aa = nn.add %a, %a : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      %ab = nn.add %a, %b {pipe.stage = 3 : i64} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      %ac = nn.add %a, %c : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      %sub = nn.sub %a, %b : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      %xx = nn.add %x, %a : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      return %xx : tensor<2xf32>
    })",
                                            &context);
  ASSERT_TRUE(module);
  func::FuncOp main = mainFunction(*module);
  std::vector<Operation *> ops;
  for (Operation &op : main.front().without_terminator())
    ops.push_back(&op);
  KnownValues values(main);
  EXPECT_EQ(&values.of(ops[4]), &values.of(ops[3]));
  EXPECT_EQ(&values.of(ops[1]), &values.of(ops[0]));
  EXPECT_EQ(values.of(ops[3]).doubles(), (std::vector<double>{2, 4}));
  EXPECT_EQ(values.of(ops[5]).doubles(), (std::vector<double>{2, 5}));
  EXPECT_EQ(values.of(ops[6]).doubles(), (std::vector<double>{0, 0}));
  EXPECT_FALSE(values.of(ops[7])); // reads an input
}
