//===- RemediesTest.cpp - what is named where nothing fits ----------------===//
#include "compiler/driver/Remedies.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace pipec {
namespace {

constexpr int64_t kLimit = 1000;

CompileOptions asked() {
  CompileOptions options;
  options.cpus = "4";
  options.strategy = "1f1b";
  options.recompute = "none";
  options.microbatches = 8;
  options.dims = {{"batch", 8}};
  options.memoryLimit = kLimit;
  return options;
}

/// The remedies of options of which these fit, and how many were tried.
std::string advice(const std::function<bool(const CompileOptions &)> &fits,
                   int &tried, int64_t bytes = 5000, int64_t batch = 8) {
  CompileOptions options = asked();
  options.dims["batch"] = batch;
  const plan::NoFit failure("nothing fits", {{plan::Remedy::Limit, bytes}}, "",
                            kLimit);
  const Smallest smallest{options, bytes};
  return advised(
             options, failure, smallest,
             [&](const CompileOptions &o) { return ++tried, fits(o); }, "batch")
      .what();
}

const std::string kNeed =
    "nothing fits in memory: the smallest plan found needs 4.88 KiB on a "
    "device, 3.91 KiB more than the 0.98 KiB there are; it would fit with "
    "--memory-limit 5000";

} // namespace

TEST(Remedies, OneChangeThatIsEnoughIsNamedAlone) {
  int tried = 0;
  EXPECT_EQ(advice([](const CompileOptions &o) { return o.microbatches <= 4; },
                   tried),
            kNeed + ", or with --microbatches 4");
}

TEST(Remedies, WhereNoChangeIsEnoughThoseThatAreTogetherAreNamed) {
  int tried = 0;
  const auto needsTwo = [](const CompileOptions &o) {
    return o.dims.at("batch") <= 2 && std::atoi(o.cpus.c_str()) >= 8;
  };
  EXPECT_EQ(advice(needsTwo, tried),
            kNeed + ", or with --dim batch=1 --cpus 16");
  EXPECT_LT(tried, 30);
  const auto needsThree = [&](const CompileOptions &o) {
    return needsTwo(o) && o.strategy == "naive";
  };
  EXPECT_EQ(advice(needsThree, tried),
            kNeed + ", or with --strategy naive --dim batch=1 --cpus 16");
}

TEST(Remedies, WhatIsFarTooLargeIsDividedByAsMuch) {
  int tried = 0;
  const std::string told =
      advice([](const CompileOptions &o) { return o.dims.at("batch") <= 500; },
             tried, 1'000'000, 1'000'000);
  EXPECT_NE(told.find(", or with --dim batch=488"), told.npos) << told;
  EXPECT_LT(tried, 20);
  const std::string single =
      advice([](const CompileOptions &o) { return o.dims.at("batch") == 1; },
             tried, 100'000, 12);
  EXPECT_NE(single.find(", or with --dim batch=1"), single.npos) << single;
}

TEST(Remedies, DevicesAreNamedInServersOfTheSameSize) {
  const auto adviceOf = [&](const char *gpus) -> std::string {
    CompileOptions options = asked();
    options.cpus = "", options.gpus = gpus;
    const plan::NoFit failure(
        "nothing fits",
        {{plan::Remedy::Limit, 5000}, {plan::Remedy::Devices, 5}}, "", kLimit);
    return advised(
               options, failure, Smallest{options, 5000},
               [&](const CompileOptions &o) { return o.gpus != gpus; }, "batch")
        .what();
  };
  EXPECT_EQ(adviceOf("4"), kNeed + ", or with --gpus 5");
  EXPECT_EQ(adviceOf("1x4"), kNeed + ", or with --gpus 1x5");
  EXPECT_EQ(adviceOf("2x2"), kNeed + ", or with --gpus 3x2");
  EXPECT_EQ(adviceOf("4x1"), kNeed + ", or with --gpus 5x1");
}

/// Sequences are cut into pieces where nobody says into how many, too.
TEST(Remedies, FewerPiecesThanTheUsualAreNamed) {
  CompileOptions options = asked();
  options.strategy = "seq1f1b";
  const plan::NoFit failure("nothing fits", {{plan::Remedy::Limit, 5000}}, "",
                            kLimit);
  const std::string said =
      advised(
          options, failure, Smallest{options, 5000},
          [](const CompileOptions &o) { return o.slices == 2; }, "batch")
          .what();
  EXPECT_EQ(said, kNeed + ", or with --slices 2");
}

TEST(Remedies, ProductsOfBf16MayRoundTheirWeightsInEveryTask) {
  const plan::NoFit failure("nothing fits", {{plan::Remedy::Limit, 5000}}, "",
                            kLimit);
  const auto adviceOf = [&](const char *precision) -> std::string {
    CompileOptions options = asked();
    options.precision = precision;
    return advised(
               options, failure, Smallest{options, 5000},
               [](const CompileOptions &o) {
                 return o.roundedWeights == "again";
               },
               "batch")
        .what();
  };
  EXPECT_EQ(adviceOf("bf16"), kNeed + ", or with --rounded-weights again");
  EXPECT_EQ(adviceOf("fp32"), kNeed);
}

TEST(Remedies, NothingIsNamedThatIsNotEnough) {
  int tried = 0;
  EXPECT_EQ(advice([](const CompileOptions &) { return false; }, tried), kNeed);
}

/// Of a model that is not tried nothing but the estimate is known, which has no
/// ends of slots: of the limit that a plan was found under, not of the
/// planner's first word.
TEST(Remedies, ALimitThatWasNotTriedHasALittleRoom) {
  const plan::NoFit failure("nothing fits", {{plan::Remedy::Limit, 5000}}, "",
                            kLimit);
  Smallest smallest{asked(), -1};
  smallest.options.memoryLimit = 2'048'000;
  const auto advice = [&](const char *fits) -> std::string {
    return advised(
               asked(), failure, smallest,
               [&](const CompileOptions &o) { return o.strategy == fits; },
               "batch")
        .what();
  };
  const std::string need =
      "nothing fits in memory: the smallest plan found keeps to 1.96 MiB on a "
      "device, 1.95 MiB more than the 0.98 KiB there are; it would fit with "
      "--memory-limit 2050000";
  EXPECT_EQ(advice("none"), need);
  EXPECT_EQ(advice("v-half"), need + ", or with --strategy v-half");
}

} // namespace pipec
