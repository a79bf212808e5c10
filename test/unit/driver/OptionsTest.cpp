//===- OptionsTest.cpp - the compiler's command line ----------------------===//
#include "compiler/driver/CompileOptions.h"
#include "support/Failure.h"
#include "support/UnknownName.h"

#include "gtest/gtest.h"

#include <fstream>

using namespace pipec;

namespace {

CompileOptions parse(std::vector<std::string> words) {
  words.insert(words.begin(), "pipec");
  std::vector<char *> argv;
  for (std::string &word : words)
    argv.push_back(word.data());
  CompileOptions options;
  parseCompileOptions(argv.size(), argv.data(), options);
  return options;
}

void expectUsage(std::vector<std::string> words, const std::string &part) {
  try {
    parse(words);
    ADD_FAILURE() << "accepted";
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::Usage);
    EXPECT_NE(std::string(failure.what()).find(part), std::string::npos)
        << failure.what();
  }
}

TEST(Options, ReadEveryForm) {
  CompileOptions o =
      parse({"m.onnx", "--cpus", "1x4", "--dim", "batch=4", "--microbatches",
             "8", "--loss", "next-token:label=ids", "--optimizer",
             "adamw:lr=1e-3", "--strategy", "1f1b", "--memory-limit", "2GiB"});
  EXPECT_EQ(o.dims["batch"], 4);
  EXPECT_EQ(o.loss, "next-token");
  EXPECT_EQ(o.lossOptions["label"], "ids");
  EXPECT_EQ(o.optimizer, "adamw");
  EXPECT_EQ(o.optimizerSettings, "lr=1e-3");
  EXPECT_EQ(o.memoryLimit, int64_t(2) << 30);
}

TEST(Options, RefuseWhatCannotBe) {
  // A model that is not there would be said first.
  const std::string model = testing::TempDir() + "there.onnx";
  std::ofstream(model) << "";
  expectUsage({model}, "no devices are named; say for which to compile, with "
                       "exactly one of --cpus");
  expectUsage({model, "--cpus", "2", "--gpus", "2"},
              "devices are named twice; say for which to compile, with exactly "
              "one of");
  expectUsage({"m.onnx", "--cpus", "2", "--dim", "batch"}, "NAME=VALUE");
  expectUsage({"m.onnx", "--cpus", "2", "--dim", "batch=0"},
              "from 1 to 1099511627776, not '0'");
  expectUsage({"m.onnx", "--cpus", "2", "--dim", "batch=4x"}, "not '4x'");
  expectUsage({"m.onnx", "--cpus", "2", "--dim", "batch=8", "--dim", "batch=4"},
              "--dim batch=4: the dimension is given twice, before as 8; leave "
              "one of the two out");
  expectUsage({"m.onnx", "--cpus", "2", "--loss", "hinge"},
              "no loss 'hinge'; there are: cross-entropy, next-token, mse, ");
  expectUsage({"m.onnx", "--cpus", "2", "--loss", "mes"},
              "(did you mean mse?)");
  expectUsage({"m.onnx", "--cpus", "2", "--loss", "mse:weight=1"},
              "no setting 'weight'; it has label=targets");
  expectUsage({"m.onnx", "--cpus", "2", "--loss", "mse:lable=x"},
              "no setting 'lable' (did you mean label?)");
  expectUsage({"m.onnx", "--cpus", "2", "--loss", "output:label=x"},
              "it has none");
  expectUsage({"m.onnx", "--cpus", "2", "--microbatches", "0"},
              "--microbatches: must be a whole number from 1 to 1000000, not "
              "'0'");
  expectUsage({"m.onnx", "--cpus", "2", "--slices", "1.5"}, "not '1.5'");
  expectUsage({"m.onnx", "--cpus", "2", "--no-such-flag"}, "no-such-flag");
  expectUsage({"m.onnx", "--cpus", "2", "--memory-limit", "much"},
              "is no amount of memory");
  for (const char *text : {"0.5", "nan", "-1GiB"})
    expectUsage({"m.onnx", "--cpus", "2", "--memory-limit", text},
                "is no amount of memory");
  for (const char *text : {"9999999TiB", "1e300"})
    expectUsage({"m.onnx", "--cpus", "2", "--memory-limit", text},
                "is more than 1e18 bytes; give less");
  expectUsage({"m.onnx", "--cpus", "2", "--dim", "batch=99999999999999"},
              "--dim batch takes a whole number from 1 to 1099511627776, not "
              "'99999999999999'");
  expectUsage({"m.onnx", "--cpus", "99999999999"},
              "'99999999999' is more than a million devices; give fewer");
  expectUsage({model, "--cpus", "0000"}, "'0000' is not a number of devices");
  expectUsage({"m.onnx", "--cpus", "2", "--strategy", "file:"},
              "--strategy file: names no file; write file:S.csv");
  expectUsage({"m.onnx", "--cpus", "2", "--recompute", "ful"},
              "--recompute: takes auto, none, selective, full, not 'ful' (did "
              "you mean full?)");
}

TEST(Options, TheNearestName) {
  EXPECT_EQ(nearestName("h100", {"h200", "h100-sxm-80g", "h100-sxm"}),
            "h100-sxm");
  EXPECT_EQ(nearestName("thread", {"threads_of_all", "threads"}), "threads");
  EXPECT_EQ(nearestName("memory_GB", {"memory_GBps", "memory_GiB"}),
            "memory_GiB");
  EXPECT_EQ(nearestName("stratgy", {"stages", "strategy"}), "strategy");
  EXPECT_EQ(nearestName("A100", {"v100", "a100-80g"}), "a100-80g");
  EXPECT_EQ(nearestName("input_ids", {"Input_IDs", "x"}), "Input_IDs");
  EXPECT_EQ(nearestName("colour", {"stages", "strategy"}), "");
}

TEST(Options, BytesWithUnits) {
  EXPECT_EQ(parseBytes("16GiB"), int64_t(16) << 30);
  EXPECT_EQ(parseBytes("1.5K"), 1536);
  EXPECT_EQ(parseBytes("2MB"), 2000000);
  EXPECT_EQ(parseBytes("77"), 77);
  EXPECT_THROW(parseBytes("-1"), Failure);
  EXPECT_THROW(parseBytes("4 GiB"), Failure);
}

} // namespace
