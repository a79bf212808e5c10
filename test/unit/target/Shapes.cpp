//===- Shapes.cpp - reductions, views and library ops against their meaning
//===//
#include "test/unit/target/StageRunner.h"

#include <gtest/gtest.h>

using namespace pipec::test;

namespace {
struct Case {
  std::string name;
  std::vector<std::string> inputs;
  std::string body;
  /// Of %y, the only output.
  std::string type;
};

/// All cases are tasks of one stage, compiled once.
void checkAll(const std::vector<Case> &cases, double tolerance = 1e-6,
              int64_t integerLimit = 7) {
  std::string stage;
  int tasks = 0;
  for (const Case &one : cases)
    stage += stageText(one.inputs, one.body, {{"%y", one.type}}, tasks++);
  checkStage(stage, tolerance, integerLimit);
}
} // namespace

#define REDUCE(name, kind, axes, from, to)                                     \
  Case{name,                                                                   \
       {"tensor<" from ">"},                                                   \
       "%y = nn.reduce %0 {kind = \"" kind "\", axes = array<i64" axes         \
       ">} : (tensor<" from ">) -> tensor<" to ">",                            \
       "tensor<" to ">"}

TEST(Shapes, Reduce) {
  checkAll(
      {REDUCE("last", "sum", ": 1", "5x768xf32", "5x1xf32"),
       REDUCE("lastOdd", "sum", ": 1", "5x101xf32", "5x1xf32"),
       REDUCE("lastShort", "sum", ": 1", "50x3xf32", "50x1xf32"),
       REDUCE("lastTwo", "sum", ": 1, 2", "5x11x13xf32", "5x1x1xf32"),
       REDUCE("all", "sum", ": 0, 1, 2", "5x11x13xf32", "1x1x1xf32"),
       REDUCE("scalar", "sum", "", "f32", "f32"),
       REDUCE("ofOne", "sum", ": 0", "1xf32", "1xf32"),
       REDUCE("first", "sum", ": 0", "70x130xf32", "1x130xf32"),
       REDUCE("firstFew", "sum", ": 0", "5x130xf32", "1x130xf32"),
       REDUCE("firstTwo", "sum", ": 0, 1", "4x33x65xf32", "1x1x65xf32"),
       REDUCE("middle", "sum", ": 1", "4x70x33xf32", "4x1x33xf32"),
       REDUCE("channels", "sum", ": 0, 2, 3", "4x6x7x7xf32", "1x6x1x1xf32"),
       REDUCE("alternate", "sum", ": 0, 2", "4x6x40x9xf32", "1x6x1x9xf32"),
       REDUCE("max", "max", ": 1", "5x101xf32", "5x1xf32"),
       REDUCE("min", "min", ": 0", "70x5xf32", "1x5xf32"),
       REDUCE("prod", "prod", ": 1", "5x13xf32", "5x1xf32"),
       REDUCE("double", "sum", ": 1", "5x101xf64", "5x1xf64"),
       REDUCE("ints", "sum", ": 1", "5x101xi64", "5x1xi64"),
       REDUCE("maxInts", "max", ": 0", "41x10xi32", "1x10xi32"),
       REDUCE("empty", "sum", ": 1", "3x0xf32", "3x1xf32"),
       REDUCE("emptyMax", "max", ": 1", "3x0xf32", "3x1xf32"),
       REDUCE("emptyRows", "sum", ": 0", "0x3xf32", "1x3xf32"),
       REDUCE("none", "sum", ": 1", "0x3xf32", "0x1xf32")});
}

TEST(Shapes, Views) {
  checkAll(
      {Case{"broadcastRows",
            {"tensor<1x33xf32>"},
            "%y = nn.broadcast %0 : (tensor<1x33xf32>) -> tensor<7x33xf32>",
            "tensor<7x33xf32>"},
       Case{"broadcastColumns",
            {"tensor<7x1xf32>"},
            "%y = nn.broadcast %0 : (tensor<7x1xf32>) -> tensor<7x33xf32>",
            "tensor<7x33xf32>"},
       Case{"broadcastThenAdd",
            {"tensor<1x6x1x1xf32>", "tensor<2x6x5x5xf32>"},
            "%b = nn.broadcast %0 : (tensor<1x6x1x1xf32>) -> "
            "tensor<2x6x5x5xf32>\n"
            "%y = nn.add %1, %b : (tensor<2x6x5x5xf32>, tensor<2x6x5x5xf32>) "
            "-> tensor<2x6x5x5xf32>",
            "tensor<2x6x5x5xf32>"},
       Case{"reshape",
            {"tensor<6x35xf32>"},
            "%y = nn.reshape %0 : (tensor<6x35xf32>) -> tensor<2x3x5x7xf32>",
            "tensor<2x3x5x7xf32>"},
       Case{"transpose",
            {"tensor<6x35xf32>"},
            "%y = nn.transpose %0 {permutation = array<i64: 1, 0>} : "
            "(tensor<6x35xf32>) -> tensor<35x6xf32>",
            "tensor<35x6xf32>"},
       Case{"transposeThenAdd",
            {"tensor<70x80xf32>", "tensor<80x70xf32>"},
            "%t = nn.transpose %0 {permutation = array<i64: 1, 0>} : "
            "(tensor<70x80xf32>) -> tensor<80x70xf32>\n"
            "%y = nn.add %1, %t : (tensor<80x70xf32>, tensor<80x70xf32>) -> "
            "tensor<80x70xf32>",
            "tensor<80x70xf32>"},
       Case{"heads",
            {"tensor<2x5x24xf32>"},
            "%r = nn.reshape %0 : (tensor<2x5x24xf32>) -> tensor<2x5x3x8xf32>\n"
            "%t = nn.transpose %r {permutation = array<i64: 0, 2, 1, 3>} : "
            "(tensor<2x5x3x8xf32>) -> tensor<2x3x5x8xf32>\n"
            "%e = nn.exp %t : (tensor<2x3x5x8xf32>) -> tensor<2x3x5x8xf32>\n"
            "%u = nn.transpose %e {permutation = array<i64: 0, 2, 1, 3>} : "
            "(tensor<2x3x5x8xf32>) -> tensor<2x5x3x8xf32>\n"
            "%y = nn.reshape %u : (tensor<2x5x3x8xf32>) -> tensor<2x5x24xf32>",
            "tensor<2x5x24xf32>"},
       Case{"slice",
            {"tensor<9x40xf32>"},
            "%y = nn.slice %0 {starts = array<i64: 1, 3>, strides = "
            "array<i64: 2, 1>} : (tensor<9x40xf32>) -> tensor<4x33xf32>",
            "tensor<4x33xf32>"},
       Case{"sliceBackwards",
            {"tensor<9x40xf32>"},
            "%s = nn.slice %0 {starts = array<i64: 8, 39>, strides = "
            "array<i64: -2, -3>} : (tensor<9x40xf32>) -> tensor<4x13xf32>\n"
            "%y = nn.neg %s : (tensor<4x13xf32>) -> tensor<4x13xf32>",
            "tensor<4x13xf32>"},
       Case{"reverse",
            {"tensor<9x40xi64>"},
            "%s = nn.reverse %0 {axes = array<i64: 0, 1>} : "
            "(tensor<9x40xi64>) -> tensor<9x40xi64>\n"
            "%y = nn.add %s, %0 : (tensor<9x40xi64>, tensor<9x40xi64>) -> "
            "tensor<9x40xi64>",
            "tensor<9x40xi64>"},
       Case{"pad",
            {"tensor<3x5xf32>"},
            "%y = nn.pad %0 {low = array<i64: 1, 2>, high = array<i64: 0, 3>, "
            "interior = array<i64: 0, 0>, value = 2.5 : f64} : "
            "(tensor<3x5xf32>) -> tensor<4x10xf32>",
            "tensor<4x10xf32>"},
       Case{"padInterior",
            {"tensor<3x5x2xf32>"},
            "%e = nn.neg %0 : (tensor<3x5x2xf32>) -> tensor<3x5x2xf32>\n"
            "%y = nn.pad %e {low = array<i64: 1, 2, 0>, high = array<i64: 0, "
            "3, 1>, interior = array<i64: 2, 0, 3>} : (tensor<3x5x2xf32>) -> "
            "tensor<8x10x6xf32>",
            "tensor<8x10x6xf32>"},
       Case{"padInts",
            {"tensor<3xi64>"},
            "%y = nn.pad %0 {low = array<i64: 1>, high = array<i64: 2>, "
            "interior = array<i64: 1>, value = -100.0 : f64} : "
            "(tensor<3xi64>) -> tensor<8xi64>",
            "tensor<8xi64>"},
       Case{"concat",
            {"tensor<3x5xf32>", "tensor<3x2xf32>"},
            "%e = nn.neg %1 : (tensor<3x2xf32>) -> tensor<3x2xf32>\n"
            "%y = nn.concat %0, %e, %0 {axis = 1 : i64} : (tensor<3x5xf32>, "
            "tensor<3x2xf32>, tensor<3x5xf32>) -> tensor<3x12xf32>",
            "tensor<3x12xf32>"},
       Case{"concatTwice",
            {"tensor<3x5xf32>"},
            "%e = nn.neg %0 : (tensor<3x5xf32>) -> tensor<3x5xf32>\n"
            "%c = nn.concat %e, %e {axis = 0 : i64} : (tensor<3x5xf32>, "
            "tensor<3x5xf32>) -> tensor<6x5xf32>\n"
            "%n = nn.exp %c : (tensor<6x5xf32>) -> tensor<6x5xf32>\n"
            "%y = nn.concat %c, %n {axis = 1 : i64} : (tensor<6x5xf32>, "
            "tensor<6x5xf32>) -> tensor<6x10xf32>",
            "tensor<6x10xf32>"},
       Case{"concatOfItsFunction",
            {"tensor<3x5xf32>"},
            "%e = nn.neg %0 : (tensor<3x5xf32>) -> tensor<3x5xf32>\n"
            "%f = nn.exp %e : (tensor<3x5xf32>) -> tensor<3x5xf32>\n"
            "%y = nn.concat %e, %f {axis = 0 : i64} : (tensor<3x5xf32>, "
            "tensor<3x5xf32>) -> tensor<6x5xf32>",
            "tensor<6x5xf32>"},
       Case{"iota",
            {},
            "%y = nn.iota {axis = 1 : i64} : () -> tensor<3x70xi64>",
            "tensor<3x70xi64>"},
       Case{"iotaMask",
            {},
            "%i = nn.iota {axis = 0 : i64} : () -> tensor<70x70xi32>\n"
            "%j = nn.iota {axis = 1 : i64} : () -> tensor<70x70xi32>\n"
            "%y = nn.compare %i, %j {predicate = \"ge\"} : "
            "(tensor<70x70xi32>, tensor<70x70xi32>) -> tensor<70x70xi1>",
            "tensor<70x70xi1>"},
       Case{"constant",
            {"tensor<4xf32>"},
            "%c = nn.constant dense<[1.0, -2.0, 3.0, 0.5]> : tensor<4xf32>\n"
            "%y = nn.mul %0, %c : (tensor<4xf32>, tensor<4xf32>) -> "
            "tensor<4xf32>",
            "tensor<4xf32>"},
       Case{"splat",
            {},
            "%y = nn.constant dense<1.5> : tensor<4x70xf32>",
            "tensor<4x70xf32>"},
       Case{"boolConstant",
            {"tensor<4xi1>"},
            "%c = nn.constant dense<[true, false, true, true]> : tensor<4xi1>\n"
            "%y = nn.and %0, %c : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>",
            "tensor<4xi1>"},
       Case{"cumsum",
            {"tensor<3x21x2xf32>"},
            "%y = nn.cumsum %0 {axis = 1 : i64} : (tensor<3x21x2xf32>) -> "
            "tensor<3x21x2xf32>",
            "tensor<3x21x2xf32>"},
       Case{"cumsumBack",
            {"tensor<21xi64>"},
            "%y = nn.cumsum %0 {axis = 0 : i64, exclusive, reverse} : "
            "(tensor<21xi64>) -> tensor<21xi64>",
            "tensor<21xi64>"},
       Case{"zeroSize",
            {"tensor<0x5xf32>"},
            "%y = nn.neg %0 : (tensor<0x5xf32>) -> tensor<0x5xf32>",
            "tensor<0x5xf32>"}});
}

TEST(Shapes, Library) {
  checkAll(
      {Case{"matmul",
            {"tensor<33x20xf32>", "tensor<20x45xf32>"},
            "%y = nn.matmul %0, %1 : (tensor<33x20xf32>, tensor<20x45xf32>) "
            "-> tensor<33x45xf32>",
            "tensor<33x45xf32>"},
       Case{"matmulTransposed",
            {"tensor<20x33xf64>", "tensor<45x20xf64>"},
            "%y = nn.matmul %0, %1 {transpose_a, transpose_b} : "
            "(tensor<20x33xf64>, tensor<45x20xf64>) -> tensor<33x45xf64>",
            "tensor<33x45xf64>"},
       Case{"matmulOfTranspose",
            {"tensor<20x33xf32>", "tensor<20x45xf32>"},
            "%t = nn.transpose %0 {permutation = array<i64: 1, 0>} : "
            "(tensor<20x33xf32>) -> tensor<33x20xf32>\n"
            "%m = nn.matmul %t, %1 : (tensor<33x20xf32>, tensor<20x45xf32>) "
            "-> tensor<33x45xf32>\n"
            "%y = nn.transpose %m {permutation = array<i64: 1, 0>} : "
            "(tensor<33x45xf32>) -> tensor<45x33xf32>",
            "tensor<45x33xf32>"},
       Case{"attention",
            {"tensor<2x5x72xf32>"},
            "%q0 = nn.slice %0 {starts = array<i64: 0, 0, 0>, strides = "
            "array<i64: 1, 1, 1>} : (tensor<2x5x72xf32>) -> "
            "tensor<2x5x24xf32>\n"
            "%k0 = nn.slice %0 {starts = array<i64: 0, 0, 24>, strides = "
            "array<i64: 1, 1, 1>} : (tensor<2x5x72xf32>) -> "
            "tensor<2x5x24xf32>\n"
            "%v0 = nn.slice %0 {starts = array<i64: 0, 0, 48>, strides = "
            "array<i64: 1, 1, 1>} : (tensor<2x5x72xf32>) -> "
            "tensor<2x5x24xf32>\n"
            "%q1 = nn.reshape %q0 : (tensor<2x5x24xf32>) -> "
            "tensor<2x5x3x8xf32>\n"
            "%k1 = nn.reshape %k0 : (tensor<2x5x24xf32>) -> "
            "tensor<2x5x3x8xf32>\n"
            "%v1 = nn.reshape %v0 : (tensor<2x5x24xf32>) -> "
            "tensor<2x5x3x8xf32>\n"
            "%q = nn.transpose %q1 {permutation = array<i64: 0, 2, 1, 3>} : "
            "(tensor<2x5x3x8xf32>) -> tensor<2x3x5x8xf32>\n"
            "%k = nn.transpose %k1 {permutation = array<i64: 0, 2, 3, 1>} : "
            "(tensor<2x5x3x8xf32>) -> tensor<2x3x8x5xf32>\n"
            "%v = nn.transpose %v1 {permutation = array<i64: 0, 2, 1, 3>} : "
            "(tensor<2x5x3x8xf32>) -> tensor<2x3x5x8xf32>\n"
            "%s = nn.matmul %q, %k : (tensor<2x3x5x8xf32>, "
            "tensor<2x3x8x5xf32>) -> tensor<2x3x5x5xf32>\n"
            "%p = nn.softmax %s : (tensor<2x3x5x5xf32>) -> "
            "tensor<2x3x5x5xf32>\n"
            "%o = nn.matmul %p, %v : (tensor<2x3x5x5xf32>, "
            "tensor<2x3x5x8xf32>) -> tensor<2x3x5x8xf32>\n"
            "%ot = nn.transpose %o {permutation = array<i64: 0, 2, 1, 3>} : "
            "(tensor<2x3x5x8xf32>) -> tensor<2x5x3x8xf32>\n"
            "%y = nn.reshape %ot : (tensor<2x5x3x8xf32>) -> tensor<2x5x24xf32>",
            "tensor<2x5x24xf32>"},
       Case{"matmulBroadcast",
            {"tensor<3x4x5xf32>", "tensor<1x5x6xf32>"},
            "%b = nn.broadcast %1 : (tensor<1x5x6xf32>) -> tensor<3x5x6xf32>\n"
            "%y = nn.matmul %0, %b : (tensor<3x4x5xf32>, tensor<3x5x6xf32>) "
            "-> tensor<3x4x6xf32>",
            "tensor<3x4x6xf32>"},
       Case{"matmulOfSplat",
            {"tensor<4x5xf32>"},
            "%c = nn.constant dense<0.5> : tensor<5x6xf32>\n"
            "%y = nn.matmul %0, %c : (tensor<4x5xf32>, tensor<5x6xf32>) -> "
            "tensor<4x6xf32>",
            "tensor<4x6xf32>"},
       Case{"matmulEmpty",
            {"tensor<4x0xf32>", "tensor<0x6xf32>"},
            "%y = nn.matmul %0, %1 : (tensor<4x0xf32>, tensor<0x6xf32>) -> "
            "tensor<4x6xf32>",
            "tensor<4x6xf32>"},
       Case{"conv1d",
            {"tensor<2x4x9xf32>", "tensor<6x4x3xf32>"},
            "%y = nn.conv %0, %1 {strides = array<i64: 1>, dilations = "
            "array<i64: 1>, pads_low = array<i64: 1>, pads_high = array<i64: "
            "1>, groups = 1 : i64} : (tensor<2x4x9xf32>, tensor<6x4x3xf32>) "
            "-> tensor<2x6x9xf32>",
            "tensor<2x6x9xf32>"},
       Case{"maxPool",
            {"tensor<2x3x8x8xf32>"},
            "%y, %i = nn.max_pool %0 {kernel = array<i64: 3, 3>, strides = "
            "array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_low = "
            "array<i64: 1, 1>, pads_high = array<i64: 1, 1>} : "
            "(tensor<2x3x8x8xf32>) -> (tensor<2x3x4x4xf32>, "
            "tensor<2x3x4x4xi32>)",
            "tensor<2x3x4x4xf32>"},
       Case{"maxPoolGrad",
            {"tensor<2x3x8x8xf32>", "tensor<2x3x4x4xf32>"},
            "%p, %i = nn.max_pool %0 {kernel = array<i64: 3, 3>, strides = "
            "array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_low = "
            "array<i64: 1, 1>, pads_high = array<i64: 1, 1>} : "
            "(tensor<2x3x8x8xf32>) -> (tensor<2x3x4x4xf32>, "
            "tensor<2x3x4x4xi32>)\n"
            "%y = nn.max_pool_grad %1, %i {kernel = array<i64: 3, 3>, strides "
            "= array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_low = "
            "array<i64: 1, 1>, pads_high = array<i64: 1, 1>} : "
            "(tensor<2x3x4x4xf32>, tensor<2x3x4x4xi32>) -> tensor<2x3x8x8xf32>",
            "tensor<2x3x8x8xf32>"},
       Case{"avgPool",
            {"tensor<2x3x8x8xf32>"},
            "%y = nn.avg_pool %0 {kernel = array<i64: 3, 3>, strides = "
            "array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_low = "
            "array<i64: 1, 1>, pads_high = array<i64: 1, 1>, count_pad} : "
            "(tensor<2x3x8x8xf32>) -> tensor<2x3x4x4xf32>",
            "tensor<2x3x4x4xf32>"},
       Case{"avgPoolGrad",
            {"tensor<2x3x4x4xf32>"},
            "%y = nn.avg_pool_grad %0 {kernel = array<i64: 3, 3>, strides = "
            "array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_low = "
            "array<i64: 1, 1>, pads_high = array<i64: 1, 1>} : "
            "(tensor<2x3x4x4xf32>) -> tensor<2x3x8x8xf32>",
            "tensor<2x3x8x8xf32>"},
       Case{"gather",
            {"tensor<11x8xf32>", "tensor<3x4xi64>"},
            "%y = nn.gather %0, %1 {axis = 0 : i64} : (tensor<11x8xf32>, "
            "tensor<3x4xi64>) -> tensor<3x4x8xf32>",
            "tensor<3x4x8xf32>"},
       Case{"gatherMiddle",
            {"tensor<2x11x8xi64>", "tensor<i32>"},
            "%y = nn.gather %0, %1 {axis = 1 : i64} : (tensor<2x11x8xi64>, "
            "tensor<i32>) -> tensor<2x8xi64>",
            "tensor<2x8xi64>"},
       Case{"scatterAdd",
            {"tensor<3x4xi64>", "tensor<3x4x8xf32>"},
            "%y = nn.scatter_add %0, %1 {axis = 0 : i64} : (tensor<3x4xi64>, "
            "tensor<3x4x8xf32>) -> tensor<11x8xf32>",
            "tensor<11x8xf32>"}});
}

/// A convolution and its gradients, padded by `low` before and `high` after.
static std::vector<Case> convolutions(const std::string &low,
                                      const std::string &high,
                                      const std::string &element = "f32") {
  const std::string how = " {strides = array<i64: 2, 1>, dilations = "
                          "array<i64: 1, 2>, pads_low = array<i64: " +
                          low + ">, pads_high = array<i64: " + high +
                          ">, groups = 2 : i64} : ";
  const std::string x = "tensor<2x4x9x9x" + element + ">",
                    w = "tensor<6x2x3x3x" + element + ">",
                    y = "tensor<2x6x5x7x" + element + ">";
  auto of = [&](const std::string &op, const std::string &a,
                const std::string &b, const std::string &result) {
    return Case{op,
                {a, b},
                "%y = nn." + op + " %0, %1" + how + "(" + a + ", " + b +
                    ") -> " + result,
                result};
  };
  return {of("conv", x, w, y), of("conv_grad_input", y, w, x),
          of("conv_grad_weight", x, y, w)};
}

TEST(Shapes, Convolution) {
  checkAll(convolutions("1, 1", "1, 1"));
  checkAll(convolutions("1, 0", "1, 2"));
  checkAll(convolutions("-1, -1", "3, 3"));
}

// Rounded once, to 8 bits.
TEST(Shapes, ConvolutionOfBFloats) {
  checkAll(convolutions("1, 1", "1, 1", "bf16"), 5e-3);
  checkAll(convolutions("1, 0", "1, 2", "bf16"), 5e-3);
}

TEST(Shapes, Elementwise) {
  checkAll(
      {Case{"divInts",
            {"tensor<100xi32>", "tensor<100xi32>"},
            "%c = nn.constant dense<3> : tensor<100xi32>\n"
            "%a = nn.sub %0, %c : (tensor<100xi32>, tensor<100xi32>) -> "
            "tensor<100xi32>\n"
            "%o = nn.constant dense<1> : tensor<100xi32>\n"
            "%b = nn.add %1, %o : (tensor<100xi32>, tensor<100xi32>) -> "
            "tensor<100xi32>\n"
            "%y = nn.div %a, %b : (tensor<100xi32>, tensor<100xi32>) -> "
            "tensor<100xi32>",
            "tensor<100xi32>"},
       Case{"modInts",
            {"tensor<100xi64>", "tensor<100xi64>"},
            "%c = nn.constant dense<3> : tensor<100xi64>\n"
            "%a = nn.sub %0, %c : (tensor<100xi64>, tensor<100xi64>) -> "
            "tensor<100xi64>\n"
            "%o = nn.constant dense<1> : tensor<100xi64>\n"
            "%b = nn.add %1, %o : (tensor<100xi64>, tensor<100xi64>) -> "
            "tensor<100xi64>\n"
            "%n = nn.neg %b : (tensor<100xi64>) -> tensor<100xi64>\n"
            "%y = nn.mod %a, %n : (tensor<100xi64>, tensor<100xi64>) -> "
            "tensor<100xi64>",
            "tensor<100xi64>"},
       Case{"powCube",
            {"tensor<70xf32>"},
            "%c = nn.constant dense<3.0> : tensor<70xf32>\n"
            "%y = nn.pow %0, %c : (tensor<70xf32>, tensor<70xf32>) -> "
            "tensor<70xf32>",
            "tensor<70xf32>"},
       Case{"compare",
            {"tensor<70xf32>", "tensor<70xf32>"},
            "%y = nn.compare %0, %1 {predicate = \"lt\"} : (tensor<70xf32>, "
            "tensor<70xf32>) -> tensor<70xi1>",
            "tensor<70xi1>"},
       Case{"select",
            {"tensor<70xi1>", "tensor<70xf32>", "tensor<70xf32>"},
            "%y = nn.select %0, %1, %2 : (tensor<70xi1>, tensor<70xf32>, "
            "tensor<70xf32>) -> tensor<70xf32>",
            "tensor<70xf32>"},
       Case{"special",
            {"tensor<70xf32>"},
            "%z = nn.constant dense<0.0> : tensor<70xf32>\n"
            "%i = nn.div %0, %z : (tensor<70xf32>, tensor<70xf32>) -> "
            "tensor<70xf32>\n"
            "%n = nn.log %0 : (tensor<70xf32>) -> tensor<70xf32>\n"
            "%a = nn.is_inf %i {negative = false} : (tensor<70xf32>) -> "
            "tensor<70xi1>\n"
            "%b = nn.is_nan %n : (tensor<70xf32>) -> tensor<70xi1>\n"
            "%y = nn.xor %a, %b : (tensor<70xi1>, tensor<70xi1>) -> "
            "tensor<70xi1>",
            "tensor<70xi1>"},
       Case{"castToInt",
            {"tensor<70xf32>"},
            "%y = nn.cast %0 : (tensor<70xf32>) -> tensor<70xi64>",
            "tensor<70xi64>"},
       Case{"castToFloat",
            {"tensor<70xi64>"},
            "%y = nn.cast %0 : (tensor<70xi64>) -> tensor<70xf32>",
            "tensor<70xf32>"},
       Case{"castBool",
            {"tensor<70xi1>"},
            "%y = nn.cast %0 : (tensor<70xi1>) -> tensor<70xf32>",
            "tensor<70xf32>"},
       Case{"castToBool",
            {"tensor<70xi32>"},
            "%y = nn.cast %0 : (tensor<70xi32>) -> tensor<70xi1>",
            "tensor<70xi1>"},
       Case{"castWider",
            {"tensor<70xf32>"},
            "%y = nn.cast %0 : (tensor<70xf32>) -> tensor<70xf64>",
            "tensor<70xf64>"}});
}
