//===- Numerics.cpp - special values, and what bits may depend on ---------===//
#include "runtime/kernels/cpu/Kernels.h"
#include "test/unit/target/StageRunner.h"
#include "test/unit/target/StageText.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::test;

/// Groups that cover every kind of kernel, large enough for several threads.
static std::vector<std::string> largeStages() {
  std::vector<std::string> stages = {
      layerNormForward("300", "513", "0.00194931774").stage(),
      layerNormBackward("300", "513", "0.00194931774").stage(),
      crossEntropy("4", 20, "5003", true).stage(),
      batchNormForward("8", "20", "33x33", "0.00011478").stage(),
      batchNormBackward("8", "20", "33x33", "0.00011478").stage()};
  StageText t;
  t.load("x", "in", "300x513xf32").load("dy", "grad_in", "300x513xf32");
  gelu(t, "300x513xf32");
  geluGradient(t, "300x513xf32");
  t.reduce("db", "sum", "dx", "0", "1x513xf32");
  t.store("y", "out").store("dx", "out").store("db", "gradients", true);
  stages.push_back(t.stage());
  StageText u;
  adamWScalars(u);
  adamWUpdate(u, "u", "100003xf32", "1xf32");
  stages.push_back(u.stage());
  return stages;
}

static void expectSameBytes(const Memory &a, const Memory &b,
                            const std::string &what) {
  for (int i = PIPEC_CONSTANTS; i < PIPEC_REGION_COUNT; ++i)
    EXPECT_TRUE(a[i] == b[i]) << "region " << i << " differs " << what;
}

TEST(Numerics, BitsDoNotDependOnThreads) {
  for (const std::string &text : largeStages()) {
    StageRunner runner(text);
    Memory before = runner.randomMemory(3, 5003), one = before;
    runner.run("forward", one);
    for (int threads : {2, 3, 7}) {
      Memory many = before;
      pipec_set_threads(threads);
      runner.run("forward", many);
      pipec_set_threads(1);
      expectSameBytes(one, many,
                      "with " + std::to_string(threads) + " threads");
    }
  }
}

TEST(Numerics, BitsDoNotDependOnFusionOrProcessor) {
  for (const std::string &text : largeStages()) {
    target::TargetOptions older, apart;
    older.cpu = "x86-64-v3";
    apart.fuse = false;
    StageRunner native(text), other(text, older), unfused(text, apart);
    Memory before = native.randomMemory(3, 5003), one = before, two = before,
           three = before;
    native.run("forward", one);
    other.run("forward", two);
    unfused.run("forward", three);
    expectSameBytes(one, two, "on x86-64-v3");
    expectSameBytes(one, three, "without fusion");
  }
}

TEST(Numerics, UpdateInPlace) {
  StageText t;
  adamWScalars(t);
  adamWUpdate(t, "u", "70x33xf32", "1x1xf32");
  adamWUpdate(t, "v", "1000xf32", "1xf32");
  StageRunner runner(t.stage("update"));
  Memory apart = runner.randomMemory(3), over = apart;
  runner.run("update", apart);
  runner.run("update", over, /*inPlace=*/true);
  EXPECT_TRUE(apart[PIPEC_NEW_WEIGHTS] == over[PIPEC_NEW_WEIGHTS]);
  EXPECT_TRUE(apart[PIPEC_NEW_WEIGHTS] == over[PIPEC_WEIGHTS]);
  EXPECT_TRUE(apart[PIPEC_OPTIMIZER] == over[PIPEC_OPTIMIZER]);
}

// A value that is reduced must not be overwritten while others still read it.
TEST(Numerics, ReducedUpdateInPlace) {
  StageText t;
  t.load("w", "weights", "40x70xf32").reduce("n", "sum", "w", "1", "40x1xf32");
  t.op("nb", "broadcast", {"n"}, "40x70xf32").op("v", "div", {"w", "nb"});
  t.op("wt", "transpose", {"w"}, "70x40xf32",
       "{permutation = array<i64: 1, 0>}");
  t.op("e", "exp", {"wt"}).store("v", "new_weights").store("e", "optimizer");
  StageRunner runner(t.stage("update"));
  Memory before = runner.randomMemory(3), apart = before, over = before;
  runner.run("update", apart);
  runner.expectMatches("update", before, apart, 2e-6);
  runner.run("update", over, /*inPlace=*/true);
  EXPECT_TRUE(apart[PIPEC_NEW_WEIGHTS] == over[PIPEC_WEIGHTS]);
  EXPECT_TRUE(apart[PIPEC_OPTIMIZER] == over[PIPEC_OPTIMIZER]);
}

static void checkSpecial(const std::string &text, double tolerance) {
  StageRunner runner(text);
  for (const target::TaskCode &task : runner.code().tasks) {
    SCOPED_TRACE(task.name);
    Memory before = runner.randomMemory(1);
    fillSpecial(runner, before);
    Memory after = before;
    runner.run(task.name, after);
    runner.expectMatches(task.name, before, after, tolerance, true);
  }
}

TEST(Numerics, SpecialValuesElementwise) {
  std::string stage, type = "tensor<7x130xf32>";
  int tasks = 0;
  for (std::string op :
       {"neg", "abs", "exp", "log", "log1p", "sqrt", "rsqrt", "reciprocal",
        "tanh", "erf", "sigmoid", "relu", "floor", "ceil", "round", "sign"})
    stage +=
        stageText({type}, "%y = nn." + op + " %0 : (" + type + ") -> " + type,
                  {{"%y", type}}, tasks++);
  for (std::string op : {"add", "sub", "mul", "div", "max", "min"})
    stage += stageText({type, type},
                       "%y = nn." + op + " %0, %1 : (" + type + ", " + type +
                           ") -> " + type,
                       {{"%y", type}}, tasks++);
  checkSpecial(stage, 4e-7);
}

TEST(Numerics, SpecialValuesCompare) {
  std::string stage, type = "tensor<7x130xf32>", result = "tensor<7x130xi1>";
  int tasks = 0;
  for (std::string predicate : {"eq", "ne", "lt", "le", "gt", "ge"})
    stage += stageText({type, type},
                       "%y = nn.compare %0, %1 {predicate = \"" + predicate +
                           "\"} : (" + type + ", " + type + ") -> " + result,
                       {{"%y", result}}, tasks++);
  for (std::string op : {"is_nan", "is_inf"})
    stage +=
        stageText({type}, "%y = nn." + op + " %0 : (" + type + ") -> " + result,
                  {{"%y", result}}, tasks++);
  checkSpecial(stage, 0);
}

TEST(Numerics, SpecialValuesReduced) {
  std::string stage, type = "tensor<40x37xf32>";
  int tasks = 0;
  for (std::string kind : {"max", "min"})
    for (auto [axes, result] : {std::pair("1", "tensor<40x1xf32>"),
                                std::pair("0", "tensor<1x37xf32>"),
                                std::pair("0, 1", "tensor<1x1xf32>")})
      stage += stageText({type},
                         "%y = nn.reduce %0 {kind = \"" + kind +
                             "\", axes = array<i64: " + axes + ">} : (" + type +
                             ") -> " + result,
                         {{"%y", result}}, tasks++);
  checkSpecial(stage, 1e-7);
}

// Rows of the mask value alone are uniform, as in PyTorch; a NaN makes its row
// NaN, and only that row.
TEST(Numerics, MaskedSoftmax) {
  std::string type = "tensor<6x70xf32>";
  StageRunner runner(stageText({type},
                               "%y = nn.softmax %0 : (" + type + ") -> " + type,
                               {{"%y", type}}));
  Memory memory = runner.randomMemory(1);
  auto *x = reinterpret_cast<float *>(memory[PIPEC_IN].data());
  for (int i = 0; i < 70; ++i) {
    x[70 + i] = -std::numeric_limits<float>::max();
    x[140 + i] = -INFINITY;
    if (i > 3)
      x[210 + i] = -std::numeric_limits<float>::max();
  }
  x[4 * 70 + 69] = NAN;
  runner.run("t0", memory);
  auto *y = reinterpret_cast<float *>(memory[PIPEC_OUT].data());
  double sums[6] = {};
  for (int row = 0; row < 6; ++row)
    for (int i = 0; i < 70; ++i)
      sums[row] += y[row * 70 + i];
  EXPECT_NEAR(sums[0], 1, 1e-6);
  EXPECT_FLOAT_EQ(y[70], 1.f / 70);
  EXPECT_TRUE(std::isnan(sums[2]));
  EXPECT_EQ(y[210 + 5], 0);
  EXPECT_NEAR(sums[3], 1, 1e-6);
  EXPECT_TRUE(std::isnan(sums[4]));
  EXPECT_NEAR(sums[5], 1, 1e-6);
}

// f64 is for gradients by differences: as good as the C library.
TEST(Numerics, DoublePrecision) {
  std::string stage, type = "tensor<300xf64>";
  int tasks = 0;
  for (std::string op : {"exp", "tanh", "erf", "sigmoid", "sin", "cos", "abs"})
    stage +=
        stageText({type}, "%y = nn." + op + " %0 : (" + type + ") -> " + type,
                  {{"%y", type}}, tasks++);
  StageRunner runner(stage);
  runner.check(1e-15);
}

/// Largest error of an f32 function over [low, high] in units of the last
/// place.
static double worstUlp(const std::string &op, double low, double high) {
  constexpr int64_t kCount = 1 << 18;
  std::string type = "tensor<" + std::to_string(kCount) + "xf32>";
  StageRunner runner(
      stageText({type}, "%y = nn." + op + " %0 : (" + type + ") -> " + type,
                {{"%y", type}}));
  Memory before = runner.randomMemory(1), after = before;
  auto *x = reinterpret_cast<float *>(before[PIPEC_IN].data());
  for (int64_t i = 0; i < kCount; ++i)
    x[i] = low + (high - low) * i / (kCount - 1);
  after = before;
  runner.run("t0", after);
  auto *y = reinterpret_cast<float *>(after[PIPEC_OUT].data());
  double worst = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    double v = x[i], want = op == "exp"    ? std::exp(v)
                            : op == "tanh" ? std::tanh(v)
                            : op == "erf"  ? std::erf(v)
                            : op == "log"  ? std::log(v)
                                           : std::log1p(v);
    float nearest = want;
    double ulp =
        std::nextafter(std::abs(nearest), INFINITY) - std::abs(nearest);
    worst = std::max(worst, std::abs(y[i] - want) / ulp);
  }
  return worst;
}

TEST(Numerics, UnitsInTheLastPlace) {
  EXPECT_LT(worstUlp("exp", -87, 88.7), 1.1);
  EXPECT_LT(worstUlp("exp", -1, 1), 1.1);
  EXPECT_LT(worstUlp("tanh", -10, 10), 2.6);
  EXPECT_LT(worstUlp("tanh", -0.01, 0.01), 2.6);
  EXPECT_LT(worstUlp("erf", -4, 4), 1.6);
  EXPECT_LT(worstUlp("log", 1e-3, 4), 1.1);
  EXPECT_LT(worstUlp("log", 1, 1e6), 1.1);
  EXPECT_LT(worstUlp("log1p", -0.9, 10), 3);
}

// Narrow floats are computed in f32 and rounded after each op.
TEST(Numerics, NarrowFloats) {
  for (std::string element : {"f16", "bf16"}) {
    StageText t;
    std::string full = "40x70x" + element, row = "40x1x" + element;
    t.load("x", "in", full).load("z", "in", "40x70xf32");
    t.op("y", "cast", {"z"}, full)
        .op("e", "exp", {"x"})
        .op("s", "mul", {"e", "y"});
    t.reduce("r", "sum", "s", "1", row)
        .reduce("c", "sum", "e", "0", "1x70x" + element);
    t.reduce("m", "max", "x", "1", row).op("mb", "broadcast", {"m"}, full);
    t.op("d", "sub", {"x", "mb"}).op("w", "cast", {"d"}, "40x70xf32");
    t.store("s", "out").store("r", "out").store("c", "out").store("w", "out");
    checkStage(t.stage(), element == "f16" ? 3e-3 : 2e-2);
  }
}

TEST(Errors, UnknownProcessor) {
  StageText t;
  t.load("x", "in", "4xf32").op("y", "neg", {"x"}).store("y", "out");
  target::TargetOptions options;
  options.cpu = "z80";
  EXPECT_NONFATAL_FAILURE(StageRunner(t.stage(), options),
                          "unknown processor 'z80'");
}

TEST(Errors, ElementTypeOfLibraryCall) {
  StageText t;
  t.load("i", "in", "4xi64").load("x", "in", "4x8xbf16");
  t.op("y", "scatter_add", {"i", "x"}, "16x8xbf16", "{axis = 0 : i64}")
      .store("y", "out");
  EXPECT_NONFATAL_FAILURE(StageRunner(t.stage(), {}),
                          "the CPU kernels have no element type 'bf16'");
}

TEST(Numerics, ManyBatchDimensions) {
  StageText t;
  std::string a = "2x2x2x2x2x3x4xf32", b = "2x2x2x2x2x4x5xf32";
  // Every second dimension swapped: no two can be walked as one.
  t.load("x", "in", a).load("z", "in", b);
  t.op("t", "transpose", {"z"}, b,
       "{permutation = array<i64: 4, 3, 2, 1, 0, 5, 6>}");
  t.op("y", "matmul", {"x", "t"}, "2x2x2x2x2x3x5xf32").store("y", "out");
  checkStage(t.stage());
}
