//===- GpuNumbers.cpp - functions and reductions that only GPUs have ------===//
#include "test/unit/target/StageRunner.h"
#include "test/unit/target/StageText.h"

#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::test;

/// The forward task on both targets; `prepare` may change what it reads.
template <typename Prepare>
static void expectLikeCpu(const std::string &text, double tolerance,
                          int64_t integerLimit, Prepare prepare) {
  StageRunner cpu(text), gpu(text, {}, "cuda");
  ASSERT_TRUE(cpu.ok() && gpu.ok());
  Memory ours = cpu.randomMemory(3, integerLimit);
  prepare(cpu, ours);
  Memory theirs = ours;
  cpu.run("forward", ours);
  gpu.run("forward", theirs);
  cpu.expectSame("forward", ours, theirs, tolerance);
}

static const auto asItIs = [](StageRunner &, Memory &) {};
static const auto special = [](StageRunner &runner, Memory &memory) {
  fillSpecial(runner, memory);
};

// Of numbers of bf16: relative to the result also where that is small.
TEST(GpuNumbers, RoughFunctions) {
  for (const char *size : {"40x512", "37x5"}) {
    const std::string narrow = size + std::string("xbf16"),
                      wide = size + std::string("xf32");
    StageText t;
    t.load("n", "in", narrow).op("x", "cast", {"n"}, wide);
    t.constant("c", "0.0625", wide).op("s", "mul", {"x", "c"});
    for (const std::string x : {"x", "s"}) {
      t.op("t" + x, "tanh", {x}, "", "{nn.rough}");
      t.op("r" + x, "div", {"t" + x, x}).store("r" + x, "out");
      t.op("e" + x, "exp", {x}, "", "{nn.rough}").store("e" + x, "out");
    }
    expectLikeCpu(t.stage(), 4e-6, 7, asItIs);
  }
}

TEST(GpuNumbers, RoughFunctionsOfSpecialNumbers) {
  StageText t;
  t.load("n", "in", "7x130xbf16").op("x", "cast", {"n"}, "7x130xf32");
  t.op("t", "tanh", {"x"}, "", "{nn.rough}").store("t", "out");
  t.op("e", "exp", {"x"}, "", "{nn.rough}").store("e", "out");
  expectLikeCpu(t.stage(), 4e-6, 7, special);
}

// In one instruction, of rows that several warps take, with a tail.
TEST(GpuNumbers, ExtremesOfSpecialNumbers) {
  for (const char *columns : {"37", "5003"}) {
    const std::string full = "11x" + std::string(columns) + "xf32";
    StageText t;
    t.load("x", "in", full);
    for (const char *kind : {"max", "min"}) {
      const std::string name = kind;
      t.reduce(name, kind, "x", "1", "11x1xf32").store(name, "out");
      t.reduce(name + "c", kind, "x", "0", "1x" + std::string(columns) + "xf32")
          .store(name + "c", "out");
    }
    expectLikeCpu(t.stage(), 0, 7, special);
  }
}

// Rows that one index names, the first or the last, and rows of several.
TEST(GpuNumbers, RareIndices) {
  for (const char *type : {"i64", "i32"}) {
    StageText t;
    t.load("ids", "in", std::string("2100x") + type)
        .load("dy", "in", "2100x20xf32");
    t.op("g", "scatter_add", {"ids", "dy"}, "5000x20xf32", "{axis = 0 : i64}");
    t.store("g", "out");
    expectLikeCpu(t.stage(), 0, 5000, asItIs);
  }
}
