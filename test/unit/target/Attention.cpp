//===- Attention.cpp - attention that keeps no scores ---------------------===//
#include "compiler/target/cuda/PlainKernel.h"
#include "passes/Passes.h"
#include "test/unit/target/StageRunner.h"

#include <gtest/gtest.h>

using namespace pipec::test;

namespace {
/// One attention with all of its gradients.
struct Case {
  std::string batch;
  int queries, keys, size;
  std::string attributes = "";
  /// None, the bias's shape, or "rows": what `low` says for the first two rows'
  /// scores.
  std::string bias = "";
  std::string element = "f32";
  /// Operands and results are views of [batch, rows, heads, size].
  bool sideBySide = false;
  std::string low = "0xFF800000"; ///< -inf
  std::string scale = "0.4";

  std::string shape(int rows, int columns, const std::string &type) const {
    return "tensor<" + batch + "x" + std::to_string(rows) + "x" +
           std::to_string(columns) + "x" + type + ">";
  }
  /// The same where heads stand side by side: batch is "BxH".
  std::string stored(int rows) const {
    if (!sideBySide)
      return shape(rows, size, element);
    const size_t x = batch.find('x');
    return "tensor<" + batch.substr(0, x) + "x" + std::to_string(rows) +
           batch.substr(x) + "x" + std::to_string(size) + "x" + element + ">";
  }
};

std::string biasText(const Case &c, const std::string &scores) {
  if (c.bias != "rows")
    return "%bias = nn.broadcast %4 : (tensor<" + c.bias + "xf32>) -> " +
           scores + "\n";
  const std::string numbers = c.shape(c.queries, c.keys, "i32"),
                    flags = c.shape(c.queries, c.keys, "i1");
  const int axis =
      static_cast<int>(std::count(c.batch.begin(), c.batch.end(), 'x')) + 1;
  return "%rows = nn.iota {axis = " + std::to_string(axis) +
         " : i64} : () -> " + numbers +
         "\n%two = nn.constant dense<2> : " + numbers +
         "\n%early = nn.compare %rows, %two {predicate = \"lt\"} : (" +
         numbers + ", " + numbers + ") -> " + flags +
         "\n%none = nn.constant dense<" + c.low + "> : " + scores +
         "\n%zero = nn.constant dense<0.0> : " + scores +
         "\n%bias = nn.select %early, %none, %zero : (" + flags + ", " +
         scores + ", " + scores + ") -> " + scores + "\n";
}

std::string taskText(const Case &c, int number) {
  const std::string of = c.stored(c.queries), from = c.stored(c.keys),
                    q = c.shape(c.queries, c.size, c.element),
                    k = c.shape(c.keys, c.size, c.element),
                    wide = c.shape(c.queries, c.size, "f32"),
                    row = c.shape(c.queries, 1, "f32"),
                    scores = c.shape(c.queries, c.keys, "f32");
  std::vector<std::string> inputs = {of, from, from, of};
  if (!c.bias.empty() && c.bias != "rows")
    inputs.push_back("tensor<" + c.bias + "xf32>");
  std::string text;
  auto swapped = [&](const std::string &to, const std::string &x,
                     const std::string &before, const std::string &after) {
    text += to + " = nn." +
            (c.sideBySide
                 ? "transpose " + x + " {permutation = array<i64: 0, 2, 1, 3>}"
                 : "reshape " + x) +
            " : (" + before + ") -> " + after + "\n";
  };
  swapped("%q", "%0", of, q);
  swapped("%k", "%1", from, k);
  swapped("%v", "%2", from, k);
  swapped("%dy", "%3", of, q);
  if (!c.bias.empty())
    text += biasText(c, scores);
  const std::string last = c.bias.empty() ? "" : ", %bias",
                    lastType = c.bias.empty() ? "" : ", " + scores,
                    how = " {scale = " + c.scale + " : f64" + c.attributes +
                          "} : (" + q + ", " + k + ", " + k;
  text += "%y, %tops, %shares = nn.attention %q, %k, %v" + last + how +
          lastType + ") -> (" + q + ", " + row + ", " + row + ")\n";
  auto widened = [&](const std::string &to, const std::string &x) {
    text += to + " = nn." + (c.element == "f32" ? "reshape " : "cast ") + x +
            " : (" + q + ") -> " + wide + "\n";
  };
  widened("%wy", "%y");
  widened("%wdy", "%dy");
  text += "%p = nn.mul %wy, %wdy : (" + wide + ", " + wide + ") -> " + wide +
          "\n%delta = nn.reduce %p {kind = \"sum\", axes = array<i64: " +
          std::to_string(std::count(c.batch.begin(), c.batch.end(), 'x') + 2) +
          ">} : (" + wide + ") -> " + row + "\n";
  const std::string operands = " %q, %k, %v, %dy, %tops, %shares, %delta" +
                               last + how + ", " + q + ", " + row + ", " + row +
                               ", " + row + lastType + ") -> ";
  text += "%gq = nn.attention_grad_query" + operands + q + "\n";
  text += "%gk, %gv = nn.attention_grad_keys" + operands + "(" + k + ", " + k +
          ")\n";
  swapped("%ry", "%y", q, of);
  swapped("%rq", "%gq", q, of);
  swapped("%rk", "%gk", k, from);
  swapped("%rv", "%gv", k, from);
  return stageText(inputs, text,
                   {{"%ry", of}, {"%rq", of}, {"%rk", from}, {"%rv", from}},
                   number);
}

std::string stageOf(const std::vector<Case> &cases) {
  std::string text;
  int number = 0;
  for (const Case &c : cases)
    text += taskText(c, number++);
  return text;
}

/// The tasks store the same on both, in both orders of threads.
void expectAlike(StageRunner &cpu, StageRunner &gpu, int tasks,
                 double tolerance) {
  for (bool descending : {false, true})
    for (int task = 0; task < tasks; ++task) {
      const std::string name = "t" + std::to_string(task);
      gpu.setDescending(descending);
      Memory ours = cpu.randomMemory(3), theirs = ours;
      cpu.run(name, ours);
      gpu.run(name, theirs);
      cpu.expectSame(name, ours, theirs, tolerance);
    }
}
} // namespace

TEST(Attention, IsNotFusedWhereNoKernelHoldsItsHeads) {
  EXPECT_EQ(pipec::FuseAttentionOptions().mostHeadSize,
            pipec::cuda::kMostHeadSize);
}

TEST(Attention, OfAnySize) {
  checkStage(stageOf({{"2", 5, 5, 8},
                      {"3", 64, 64, 64},
                      {"1", 70, 130, 16},
                      {"2x2", 33, 17, 20},
                      {"2", 9, 140, 80},
                      {"1", 40, 40, 128},
                      {"1x2", 1, 66, 3},
                      {"2", 19, 1, 1}}),
             3e-6);
}

TEST(Attention, Masked) {
  checkStage(stageOf({{"2", 7, 7, 8, ", causal"},
                      {"1x2", 130, 130, 16, ", causal"},
                      {"1", 100, 100, 64, ", causal"},
                      {"1", 128, 128, 64, ", causal"},
                      {"2x2", 33, 40, 8, "", "1x1x33x40"},
                      {"2x2", 33, 40, 8, "", "2x1x1x40"},
                      {"2x2", 33, 33, 8, ", causal", "2x2x33x33"}}),
             3e-6);
}

// Without a gradient no numbers of rows are written; one tensor may be all
// three.
TEST(Attention, ForwardAlone) {
  const std::string type = "tensor<2x37x24xf32>";
  checkStage(
      stageText({type},
                "%y, %s, %r = nn.attention %0, %0, %0 {scale = 0.3 : f64, "
                "causal} : (" +
                    type + ", " + type + ", " + type + ") -> (" + type +
                    ", tensor<2x37x1xf32>, tensor<2x37x1xf32>)\n",
                {{"%y", type}}),
      3e-6);
}

// Rows that attend to nothing are zero when asked, and so are their gradients.
TEST(Attention, RowsWithoutScores) {
  checkStage(
      stageOf(
          {{"2", 20, 30, 8, ", zero_rows", "rows"},
           {"1x2", 70, 70, 16, ", causal, zero_rows", "rows"},
           // Scores that are no numbers.
           {"2", 20, 30, 8, ", zero_rows", "rows", "f32", false, "0x7FC00000"},
           {"2", 20, 30, 8, "", "rows", "f32", false, "0x7FC00000"}}),
      3e-6);
}

// Rows that a finite number masks as a whole attend to all keys alike; what it
// replaces has no gradient.
TEST(Attention, RowsMaskedByTheLowestNumber) {
  const std::string low = "0xFF7FFFFF";
  checkStage(
      stageOf({{"2", 20, 30, 8, "", "rows", "f32", false, low},
               {"1x2", 70, 70, 16, ", replaces", "rows", "f32", false, low},
               {"2", 9, 140, 80, ", replaces", "rows", "f32", false, low},
               {"1x2", 70, 70, 16, ", causal", "rows", "f32", false, low}}),
      3e-6);
}

// Beside other numbers f32 keeps some of a score's digits, f64 all of them: the
// kernels have those of the products that processors run.
TEST(Attention, RowsMaskedByOtherNumbers) {
  const std::string text =
      stageOf({{"2", 20, 130, 8, "", "rows", "f32", false, "-1.0e9"},
               {"1x2", 70, 70, 8, ", causal", "rows", "f32", false, "-1.0e9"}});
  StageRunner cpu(text), gpu(text, {}, "cuda");
  ASSERT_TRUE(cpu.ok() && gpu.ok());
  expectAlike(cpu, gpu, 2, 3e-6);
}

// The maximum is that of scaled scores.
TEST(Attention, OfAnyScale) {
  checkStage(
      stageOf({{"2", 33, 70, 8, "", "", "f32", false, "", "-0.7"},
               {"2", 33, 33, 8, ", causal", "", "f32", false, "", "0.0"},
               {"2", 33, 33, 8, ", causal", "", "f32", false, "", "3.0"}}),
      3e-6);
}

// Heads side by side are read and written where they are: nothing is copied.
TEST(Attention, HeadsSideBySide) {
  const std::string text =
      stageOf({{"2x4", 24, 40, 16, "", "", "f32", true},
               {"3x2", 33, 33, 8, ", causal", "", "f32", true},
               {"1x3", 20, 20, 5, "", "", "f32", true}});
  checkStage(text, 3e-6);
  StageRunner gpu(stageOf({{"2x4", 24, 40, 16, "", "", "f32", true}}), {},
                  "cuda");
  ASSERT_TRUE(gpu.ok());
  // Forward, the row sums and two gradients.
  EXPECT_EQ(gpu.code().kernelCount, 4);
  // Row statistics and sums, and y, which they are made of.
  EXPECT_LE(gpu.code().tasks.front().workspaceBytes,
            2 * 2 * 4 * 24 * 4 + 2 * 24 * 4 * 16 * 4 + 3 * 64);
}

// Products of bf16 with sums in f32; weights are rounded between the products.
TEST(Attention, OfBFloats) {
  const std::string text = stageOf(
      {{"2", 70, 130, 64, "", "", "bf16"},
       {"1", 128, 128, 64, ", causal", "", "bf16"},
       {"1", 64, 96, 64, "", "", "bf16", false, "", "-0.7"},
       {"1x2", 130, 130, 32, ", causal", "", "bf16", true},
       {"1x2", 40, 40, 128, ", causal", "1x1x40x40", "bf16"},
       {"2", 20, 33, 8, "", "", "bf16"},
       {"1", 18, 20, 5, ", zero_rows", "rows", "bf16"},
       {"2", 20, 33, 8, ", replaces", "rows", "bf16", false, "0xFF7FFFFF"}});
  StageRunner cpu(text), gpu(text, {}, "cuda");
  ASSERT_TRUE(cpu.ok() && gpu.ok());
  // A library takes those without a bias. What it leaves of rows serves the
  // kernels of gradients as well.
  constexpr int kTasks = 8, kTaken = 5, kOrders = 2;
  for (auto [which, calls] : {std::pair(DeviceEmulator::Never, 0),
                              std::pair(DeviceEmulator::Forward, 1),
                              std::pair(DeviceEmulator::Always, 2)}) {
    gpu.setAttends(which);
    expectAlike(cpu, gpu, kTasks, 4e-2);
    EXPECT_EQ(gpu.takeAttendedCalls(), kOrders * kTaken * calls);
  }
}

// Keys and values of a group of heads are read where they are, once in memory;
// what their gradients are summed from is each head's.
TEST(Attention, HeadsThatShareKeys) {
  for (const std::string element : {"f32", "bf16"}) {
    auto tensor = [&](const char *shape) {
      return std::string("tensor<") + shape + "x" + element + ">";
    };
    const std::string q = tensor("1x2x3x33x8"), k = tensor("1x2x1x40x8"),
                      all = tensor("1x2x3x40x8"),
                      row = "tensor<1x2x3x33x1xf32>";
    auto repeated = [&](const std::string &to, const std::string &x) {
      return to + " = nn.broadcast " + x + " : (" + k + ") -> " + all + "\n";
    };
    const std::string how =
        " {scale = 0.4 : f64} : (" + q + ", " + all + ", " + all;
    const std::string forward = repeated("%k", "%1") + repeated("%v", "%2") +
                                "%y, %tops, %shares = nn.attention %0, %k, %v" +
                                how + ") -> (" + q + ", " + row + ", " + row +
                                ")\n";
    StageRunner gpu(stageText({q, k, k}, forward, {{"%y", q}}), {}, "cuda");
    ASSERT_TRUE(gpu.ok());
    EXPECT_EQ(gpu.code().kernelCount, 1);
    EXPECT_EQ(gpu.code().tasks.front().workspaceBytes, 0);
    const std::string operands = " %0, %k, %v, %3, %tops, %shares, %4" + how +
                                 ", " + q + ", " + row + ", " + row + ", " +
                                 row + ") -> ";
    auto summed = [&](const std::string &to, const std::string &x) {
      return to + " = nn.reduce " + x +
             " {kind = \"sum\", axes = array<i64: "
             "2>} : (" +
             all + ") -> " + k + "\n";
    };
    const std::string text = stageText(
        {q, k, k, q, row},
        forward + "%gq = nn.attention_grad_query" + operands + q +
            "\n%gk, %gv = nn.attention_grad_keys" + operands + "(" + all +
            ", " + all + ")\n" + summed("%sk", "%gk") + summed("%sv", "%gv"),
        {{"%y", q}, {"%gq", q}, {"%sk", k}, {"%sv", k}});
    if (element == "f32") {
      checkStage(text, 3e-6);
      continue;
    }
    StageRunner ours(text), theirs(text, {}, "cuda");
    ASSERT_TRUE(ours.ok() && theirs.ok());
    expectAlike(ours, theirs, 1, 4e-2);
  }
}
