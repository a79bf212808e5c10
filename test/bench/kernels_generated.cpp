//===- kernels_generated.cpp - speed of generated kernels -----------------===//
//
//   [ONLY=part of a name] [DUMP=path] kernels_generated [threads…]  (1 2)
//
// DUMP writes path.mlir (kernels), path.ll and path.o of the last stage.
//
// Compiles the groups that training spends its time in, at the sizes of GPT-2
// (batch 4, 128 tokens) and ResNet-50 (batch 8), and prints the least time of
// many runs.
//
//===----------------------------------------------------------------------===//
#include "runtime/kernels/cpu/Kernels.h"
#include "test/unit/target/StageRunner.h"
#include "test/unit/target/StageText.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>

using namespace pipec::test;

static std::vector<int> threadCounts = {1, 2};
static const char *only = nullptr, *dump = nullptr;

static void measure(const char *name, const std::string &text,
                    const std::string &task = "forward",
                    int64_t integerLimit = 7) {
  if (only && !std::strstr(name, only))
    return;
  pipec::target::TargetOptions options;
  options.keepKernels = options.keepLlvm = options.keepObject = dump;
  StageRunner runner(text, options);
  if (!runner.ok())
    return;
  if (dump) {
    std::ofstream(std::string(dump) + ".mlir") << runner.code().kernels;
    std::ofstream(std::string(dump) + ".ll") << runner.code().llvm;
    std::ofstream(std::string(dump) + ".o") << runner.code().object;
  }
  std::printf("%-28s %2d kernels", name, runner.code().kernelCount);
  Memory memory = runner.randomMemory(1, integerLimit);
  for (int threads : threadCounts) {
    pipec_set_threads(threads);
    std::printf("  T%d %9.1f us", threads, runner.time(task, memory) * 1e6);
  }
  std::printf("\n");
}

static std::string biasGelu() {
  std::string full = "512x3072xf32";
  StageText t;
  t.load("m", "in", full).load("bias", "weights", "3072xf32");
  t.op("b1", "reshape", {"bias"}, "1x3072xf32");
  t.op("bB", "broadcast", {"b1"}, full).op("x", "add", {"m", "bB"});
  gelu(t, full);
  t.store("y", "out");
  return t.stage();
}

static std::string geluBackward() {
  std::string full = "512x3072xf32";
  StageText t;
  t.load("dy", "grad_in", full).load("x", "stash", full);
  gelu(t, full);
  geluGradient(t, full);
  t.reduce("db1", "sum", "dx", "0", "1x3072xf32");
  t.op("db", "reshape", {"db1"}, "3072xf32");
  t.store("dx", "out").store("db", "gradients", true);
  return t.stage();
}

static std::string softmax(bool backward) {
  std::string full = "4x12x128x128xf32", mask = "128x128";
  StageText t;
  t.constant("scale", "0.125", full);
  if (backward) {
    t.load("p", "stash", full).load("dp", "grad_in", full);
    softmaxGradient(t, full, "4x12x128x1xf32", "3");
    t.op("ds", "mul", {"g", "scale"}).store("ds", "out");
    return t.stage();
  }
  t.load("s", "in", full).load("keep", "constants", mask + "xi1");
  t.op("a", "mul", {"s", "scale"});
  t.op("keep4", "reshape", {"keep"}, "1x1x" + mask + "xi1");
  t.op("keepB", "broadcast", {"keep4"}, "4x12x" + mask + "xi1");
  t.constant("low", "-3.40282347E+38", full);
  t.op("m", "select", {"keepB", "a", "low"}, full);
  t.op("p", "softmax", {"m"}).store("p", "stash");
  return t.stage();
}

static std::string norm(bool backward) {
  if (!backward)
    return layerNormForward("512", "768", "0.00130208337").stage();
  return layerNormBackward("512", "768", "0.00130208337").stage();
}

static std::string adamW() {
  StageText t;
  adamWScalars(t);
  adamWUpdate(t, "u", "10000000xf32", "1xf32");
  return t.stage();
}

static std::string transpose() {
  StageText t;
  t.load("x", "in", "4x128x12x64xf32");
  t.op("y", "transpose", {"x"}, "4x12x128x64xf32",
       "{permutation = array<i64: 0, 2, 1, 3>}");
  t.store("y", "out");
  return t.stage();
}

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  only = std::getenv("ONLY");
  dump = std::getenv("DUMP");
  if (argc > 1) {
    threadCounts.clear();
    for (int i = 1; i < argc; ++i)
      threadCounts.push_back(std::atoi(argv[i]));
  }
  measure("bias+GELU forward", biasGelu());
  measure("GELU backward+dbias", geluBackward());
  measure("layer norm forward", norm(false));
  measure("layer norm backward", norm(true));
  measure("masked softmax forward", softmax(false));
  measure("softmax backward", softmax(true));
  measure("cross-entropy forward",
          crossEntropy("4", 128, "50257", false).stage(), "forward", 50257);
  measure("cross-entropy both", crossEntropy("4", 128, "50257", true).stage(),
          "forward", 50257);
  measure("AdamW 10M", adamW());
  measure("transpose", transpose());
  measure("batch norm+ReLU forward",
          batchNormForward("8", "64", "56x56", "3.9859693877551e-05").stage());
  measure("batch norm+ReLU backward",
          batchNormBackward("8", "64", "56x56", "3.9859693877551e-05").stage());
  return testing::Test::HasFailure();
}
