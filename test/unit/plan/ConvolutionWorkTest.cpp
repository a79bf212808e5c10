//===- ConvolutionWorkTest.cpp - amounts against counting by hand ---------===//
#include "compiler/plan/ConvolutionWork.h"

#include <gtest/gtest.h>

using namespace pipec::plan;

namespace {

/// Squares of `size` with windows of `taps` that keep the size but for strides.
ConvolutionShape squares(int64_t images, int64_t channels, int64_t outputs,
                         int64_t size, int64_t taps, int64_t stride = 1) {
  ConvolutionShape s{images, channels, outputs, 1, {}};
  for (int a : {1, 2})
    s.axes[a] = {size, (size + taps / 2 * 2 - taps) / stride + 1,
                 taps, stride,
                 1,    taps / 2};
  return s;
}

double amount(const KernelWork &work, const std::string &name) {
  const auto &names = kernelAmounts().at(work.kernel);
  EXPECT_EQ(names.size(), work.amounts.size()) << work.kernel;
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name)
      return work.amounts[i];
  ADD_FAILURE() << work.kernel << " has no " << name;
  return 0;
}

constexpr auto Forward = ConvolutionPass::Forward,
               Input = ConvolutionPass::BackwardInput,
               Weight = ConvolutionPass::BackwardWeight;

} // namespace

/// The gradient of the weights goes over all pictures: 144 lines in vectors of
/// 8, over 256 positions in blocks of 16.
TEST(ConvolutionWork, ProductsOverAllPictures) {
  const KernelWork work =
      convolutionWork(squares(4, 16, 32, 8, 3), Weight, "product", {});
  EXPECT_EQ(work.kernel, "convolution-backward-weight-product");
  EXPECT_EQ(amount(work, "step"), 32 * 18 * 256);
  EXPECT_EQ(amount(work, "packed"), 144 * 32);
  EXPECT_EQ(amount(work, "left"), 32 * 256);
  EXPECT_TRUE(work.divides);
}

/// A picture of 2 x 2 under a window of 7 x 7: most of what is packed is zeros
/// and is not read. Each position meets 2 of 7 taps along an axis.
TEST(ConvolutionWork, WhatLiesOutsideIsNotRead) {
  const KernelWork work =
      convolutionWork(squares(8, 3, 8, 2, 7), Forward, "product", {});
  const double stretches = 4 + 16; // 32 columns: vectors, and ends of rows
  EXPECT_EQ(amount(work, "packed"), 3 * 49 * 4);
  EXPECT_NEAR(amount(work, "run"), 3 * 49 * stretches * 4 / 49, 1e-9);
}

/// Windows of one position read a picture as one row, others line by line.
TEST(ConvolutionWork, OnePositionReadsAPictureAsARow) {
  const auto stretches = [](int64_t taps) {
    return amount(convolutionWork(squares(1, 16, 4, 14, taps), Forward,
                                  "product", {}),
                  "run") /
           static_cast<double>(taps * taps);
  };
  EXPECT_EQ(stretches(1), 16 * (25 + 1));
  EXPECT_GT(stretches(3), 16 * 25);
}

/// Results of pictures smaller than a panel are computed aside and put there
/// piece by piece: 128 columns in panels of 24, pictures of 16.
TEST(ConvolutionWork, SmallPicturesAreComputedAside) {
  EXPECT_GT(
      amount(convolutionWork(squares(8, 8, 8, 4, 1), Forward, "product", {}),
             "put"),
      0);
  EXPECT_EQ(
      amount(convolutionWork(squares(1, 8, 8, 4, 1), Forward, "product", {}),
             "put"),
      0);
}

/// With strides the gradient is a product for each remainder: no multiplication
/// by an inserted zero, and rows are put between each other.
TEST(ConvolutionWork, StridesFallApart) {
  const KernelWork apart =
      convolutionWork(squares(1, 8, 16, 16, 3, 2), Input, "product", {});
  EXPECT_EQ(amount(apart, "phase"), 4);
  EXPECT_EQ(amount(apart, "step"), 8 * 8 * 16 * 9);
  EXPECT_EQ(amount(apart, "back"), 8 * 256);
  EXPECT_EQ(amount(apart, "row back"), 8 * 4 * 8);
  const KernelWork whole =
      convolutionWork(squares(1, 8, 16, 16, 3), Input, "product", {});
  EXPECT_EQ(amount(whole, "phase"), 1);
  EXPECT_EQ(amount(whole, "back"), 0);
}

/// Eight rows of one vector, of three by three taps; the first of three begins
/// where a vector does. Ten padded rows of 32 elements fill the band.
TEST(ConvolutionWork, RowsAreAddedTapByTap) {
  const KernelWork work =
      convolutionWork(squares(1, 1, 1, 8, 3), Forward, "rows", {});
  EXPECT_EQ(amount(work, "aligned"), 8 * 3);
  EXPECT_EQ(amount(work, "shifted"), 8 * 6);
  EXPECT_EQ(amount(work, "term"), 8 * 9);
  EXPECT_EQ(amount(work, "line"), 8);
  EXPECT_EQ(amount(work, "filled"), 10 * 32 / 8);
  EXPECT_EQ(amount(work, "built"), 9);
  EXPECT_FALSE(work.divides);
}

/// Every output's gradient goes through the picture anew.
TEST(ConvolutionWork, WeightsFillABandForEveryOutput) {
  const auto filled = [](int64_t outputs) {
    return amount(
        convolutionWork(squares(2, 1, outputs, 8, 3), Weight, "rows", {}),
        "filled");
  };
  EXPECT_EQ(filled(4), 4 * filled(1));
}

/// All taps are met once over the four remainders of a stride of two.
TEST(ConvolutionWork, RowsOfAStrideMeetEachTapOnce) {
  const KernelWork work =
      convolutionWork(squares(1, 2, 4, 16, 3, 2), Input, "rows", {});
  EXPECT_EQ(amount(work, "aligned") + amount(work, "shifted"), 2 * 8 * 4 * 9);
  EXPECT_EQ(amount(work, "put"), 2 * 8 * 4);
  EXPECT_EQ(amount(convolutionWork(squares(1, 2, 4, 16, 3), Input, "rows", {}),
                   "put"),
            0);
}

/// Groups are as many products, of as many fewer channels.
TEST(ConvolutionWork, GroupsDivideTheChannels) {
  ConvolutionShape s = squares(1, 8, 8, 16, 3);
  s.groups = 8;
  for (const char *path : {"rows", "product", "winograd", "direct"})
    for (auto pass : {Forward, Input, Weight}) {
      const KernelWork work = convolutionWork(s, pass, path, {});
      EXPECT_EQ(amount(work, "call"), 1);
      for (double n : work.amounts)
        EXPECT_GE(n, 0) << work.kernel;
    }
  EXPECT_EQ(amount(convolutionWork(s, Forward, "rows", {}), "term"),
            8 * 16 * 9);
}
