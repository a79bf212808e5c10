//===- Models.cpp - whole models on the emulated GPU and on the CPU -------===//
//
// PIPEC_STAGES names what `pipec --emit pipe` wrote (e2e/cuda_test.py); without
// it the test is skipped. Every task of every stage runs on both targets, each
// on what the tasks before it left.
//
//===----------------------------------------------------------------------===//
#include "dialects/pipe/Pipe.h"
#include "test/unit/target/StageRunner.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>

using namespace mlir;
using namespace pipec;
using namespace pipec::test;

/// The stages in a file, each as text.
static std::vector<std::string> stagesIn(const std::string &path) {
  MLIRContext context;
  context.loadDialect<nn::NNDialect, pipe::PipeDialect, func::FuncDialect>();
  auto module = parseSourceFile<ModuleOp>(path, &context);
  std::vector<std::string> stages;
  if (!module) {
    ADD_FAILURE() << "cannot read " << path;
    return stages;
  }
  for (auto stage : module->getOps<ModuleOp>()) {
    std::string text;
    llvm::raw_string_ostream os(text);
    stage.print(os);
    stages.push_back(text);
  }
  return stages;
}

/// Weights small, what is a mean of squares not negative, so that numbers stay
/// ordinary ones.
static void settle(Memory &memory) {
  auto each = [&](int region, auto change) {
    std::vector<char> &bytes = memory[region];
    for (size_t at = 0; at + sizeof(float) <= bytes.size();
         at += sizeof(float)) {
      float value;
      std::memcpy(&value, &bytes[at], sizeof value);
      value = change(value);
      std::memcpy(&bytes[at], &value, sizeof value);
    }
  };
  each(PIPEC_WEIGHTS, [](float x) { return 0.1F * x; });
  for (int region : {PIPEC_OPTIMIZER, PIPEC_STATE, PIPEC_STATS})
    each(region, [](float x) { return std::abs(x); });
  // What is received may be a variance; integers are no normal numbers.
  each(PIPEC_IN, [](float x) { return std::isnormal(x) ? std::abs(x) : x; });
}

TEST(Models, EmulatedLikeTheCpu) {
  const char *path = std::getenv("PIPEC_STAGES");
  if (!path)
    GTEST_SKIP() << "PIPEC_STAGES names no stages";
  std::vector<std::string> stages = stagesIn(path);
  EXPECT_FALSE(stages.empty());
  for (auto [number, text] : llvm::enumerate(stages)) {
    SCOPED_TRACE("stage " + std::to_string(number));
    StageRunner cpu(text), gpu(text, {}, "cuda");
    ASSERT_TRUE(cpu.ok() && gpu.ok());
    Memory ours = cpu.randomMemory(11, 3);
    settle(ours);
    Memory theirs = ours;
    for (const char *task : {"forward", "backward", "backward_input",
                             "backward_weight", "track", "update"}) {
      if (!gpu.has(task))
        continue;
      SCOPED_TRACE(task);
      cpu.run(task, ours);
      gpu.run(task, theirs);
      EXPECT_TRUE(cpu.isFinite(task, ours)); // else little is compared
      cpu.expectSame(task, ours, theirs, 1e-4);
      theirs = ours; // differences do not add up
    }
  }
}
