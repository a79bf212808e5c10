//===- Groups.cpp - groups of ops that train networks ---------------------===//
//
// Each function must become the stated number of kernels, mean what its ops
// mean, and give the same bytes as its ops one by one.
//
//===----------------------------------------------------------------------===//
#include "test/unit/target/StageRunner.h"
#include "test/unit/target/StageText.h"

#include <gtest/gtest.h>

using namespace pipec::test;

static void expectKernels(const std::string &text, int kernels,
                          double tolerance = 2e-6, int64_t integerLimit = 7) {
  checkStage(text, tolerance, integerLimit);
  StageRunner runner(text);
  EXPECT_EQ(runner.code().kernelCount, kernels);
}

TEST(Groups, LayerNormForward) {
  expectKernels(layerNormForward("35", "768", "0.00130208337").stage(), 1);
  expectKernels(layerNormForward("3", "101", "0.00990099").stage(), 1);
}

// One kernel for the rows, one that adds up partial columns, for both sums.
TEST(Groups, LayerNormBackward) {
  for (const char *rows : {"5", "70", "128"})
    expectKernels(layerNormBackward(rows, "101", "0.00990099").stage(), 2,
                  5e-6);
}

TEST(Groups, BiasGelu) {
  std::string full = "4x35x130xf32";
  StageText t;
  t.load("m", "in", "140x130xf32").load("bias", "weights", "130xf32");
  t.op("m3", "reshape", {"m"}, full);
  t.op("b1", "reshape", {"bias"}, "1x1x130xf32");
  t.op("bB", "broadcast", {"b1"}, full).op("x", "add", {"m3", "bB"});
  gelu(t, full);
  t.op("y2", "reshape", {"y"}, "140x130xf32").store("y2", "out");
  t.store("x", "stash");
  expectKernels(t.stage(), 1);
}

TEST(Groups, GeluBackwardAndBias) {
  std::string full = "140x130xf32";
  StageText t;
  t.load("dy", "grad_in", full).load("x", "stash", full);
  gelu(t, full);
  geluGradient(t, full);
  t.reduce("db1", "sum", "dx", "0", "1x130xf32");
  t.op("db", "reshape", {"db1"}, "130xf32");
  t.store("dx", "out").store("db", "gradients", true);
  expectKernels(t.stage("backward"), 2, 5e-6);
}

TEST(Groups, CausalSoftmax) {
  for (std::string n : {"128", "33"}) {
    std::string full = "2x3x" + n + "x" + n + "xf32", mask = n + "x" + n;
    StageText t;
    t.load("s", "in", full).load("dp", "grad_in", full);
    t.constant("scale", "0.125", full).op("a", "mul", {"s", "scale"});
    t.op("i", "iota", {}, mask + "xi32", "{axis = 0 : i64}");
    t.op("j", "iota", {}, mask + "xi32", "{axis = 1 : i64}");
    t.op("keep", "compare", {"i", "j"}, mask + "xi1", "{predicate = \"ge\"}");
    t.op("keep4", "reshape", {"keep"}, "1x1x" + mask + "xi1");
    t.op("keepB", "broadcast", {"keep4"}, "2x3x" + mask + "xi1");
    t.constant("low", "-3.40282347E+38", full);
    t.op("m", "select", {"keepB", "a", "low"}, full);
    t.op("p", "softmax", {"m"}).store("p", "stash");
    expectKernels(t.stage(), 2); // the mask, once, and the rows
  }
}

TEST(Groups, SoftmaxBackward) {
  std::string full = "6x40x33xf32";
  StageText t;
  t.load("p", "stash", full).load("dp", "grad_in", full);
  softmaxGradient(t, full, "6x40x1xf32", "2");
  t.constant("scale", "0.125", full);
  t.op("ds", "mul", {"g", "scale"}).store("ds", "out");
  expectKernels(t.stage("backward"), 1);
}

// The rows, and the sum of their losses.
TEST(Groups, CrossEntropy) {
  expectKernels(crossEntropy("2", 5, "301", true).stage(), 2, 2e-6, 301);
}

// Scalars, an update without and one with a tail.
TEST(Groups, AdamW) {
  StageText t;
  adamWScalars(t);
  adamWUpdate(t, "u", "40x64xf32", "1x1xf32");
  adamWUpdate(t, "v", "1000xf32", "1xf32");
  adamWUpdate(t, "x", "128xf32", "1xf32");
  expectKernels(t.stage("update"), 3);
}

TEST(Groups, BatchNormForward) {
  for (const char *channels : {"6", "16"})
    expectKernels(batchNormForward("4", channels, "7x7", "0.005102041").stage(),
                  1);
}

TEST(Groups, BatchNormBackward) {
  expectKernels(batchNormBackward("4", "6", "7x7", "0.005102041").stage(), 1,
                5e-6);
}

// Weight gradients go straight to their accumulators.
TEST(Groups, LinearBackward) {
  StageText t;
  t.load("x", "stash", "2x35x20xf32").load("dy", "grad_in", "2x35x30xf32");
  t.load("w", "weights", "20x30xf32").load("ids", "in", "2x35xi64");
  t.op("x2", "reshape", {"x"}, "70x20xf32");
  t.op("d2", "reshape", {"dy"}, "70x30xf32");
  t.op("dw", "matmul", {"x2", "d2"}, "20x30xf32", "{transpose_a}");
  t.op("dwT", "transpose", {"dw"}, "30x20xf32",
       "{permutation = array<i64: 1, 0>}");
  t.op("dx2", "matmul", {"d2", "w"}, "70x20xf32", "{transpose_b}");
  t.op("dx", "reshape", {"dx2"}, "2x35x20xf32");
  t.reduce("db1", "sum", "d2", "0", "1x30xf32");
  t.op("db", "reshape", {"db1"}, "30xf32");
  t.op("emb", "scatter_add", {"ids", "dx"}, "50x20xf32", "{axis = 0 : i64}");
  t.store("dwT", "gradients", true).store("db", "gradients", true);
  t.store("emb", "gradients", true).store("dx", "grad_out");
  std::string text = t.stage("backward");
  expectKernels(text, 2, 5e-6, 50);
  StageRunner runner(text);
  EXPECT_EQ(runner.code().tasks.front().workspaceBytes, 3 * 30 * 4 + 24)
      << "only partial sums of the bias gradient";
}

// Weights by the row's sum and by its logarithm, in one kernel: the
// exponentials that wait in the place of one result are read before it is
// written.
TEST(Groups, SoftmaxTwice) {
  const std::string full = "6x9x40xf32", row = "6x9x1xf32";
  StageText t;
  t.load("x", "in", full).load("mask", "in", "1x9x40xf32");
  t.op("m", "broadcast", {"mask"}, full).op("s", "add", {"x", "m"});
  t.reduce("top", "max", "s", "2", row).op("tops", "broadcast", {"top"}, full);
  t.op("d", "sub", {"s", "tops"}).op("e", "exp", {"d"});
  t.reduce("sum", "sum", "e", "2", row).op("r", "reciprocal", {"sum"});
  t.op("l", "log", {"sum"}).op("stat", "add", {"top", "l"});
  t.op("stats", "broadcast", {"stat"}, full).op("c", "sub", {"s", "stats"});
  t.op("again", "exp", {"c"}).store("again", "out");
  t.op("rs", "broadcast", {"r"}, full).op("p", "mul", {"e", "rs"});
  t.store("p", "out");
  expectKernels(t.stage(), 1);
}

// 2^40 paths lead from the result to the input; what a phase needs is found by
// looking at each value once.
TEST(Groups, LongChain) {
  const std::string full = "6x40xf32", row = "6x1xf32";
  StageText t;
  t.load("x0", "in", full);
  std::string x = "x0";
  for (int i = 1; i <= 40; ++i) {
    const std::string next = "x" + std::to_string(i);
    t.op(next, "add", {x, x});
    x = next;
  }
  t.reduce("top", "max", x, "1", row).op("tops", "broadcast", {"top"}, full);
  t.op("y", "sub", {x, "tops"}).store("y", "out");
  expectKernels(t.stage(), 1);
}
