#include "compiler/plan/TypicalCore.h"

#include <gmock/gmock.h>

using namespace pipec::plan;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::SizeIs;

namespace {

DeviceModel typical(bool multipliesBf16 = false) {
  return typicalCore(nativeCpu(3.0, 256, int64_t(1) << 34, 1, multipliesBf16),
                     {});
}

} // namespace

// A routine without costs would be priced by the roofline again.
TEST(TypicalCore, HasCostsOfEveryRoutine) {
  const DeviceModel core = typical();
  for (const auto *kernels : {&core.kernels, &core.farKernels}) {
    for (const auto &[name, amounts] : kernelAmounts()) {
      if (name.ends_with("-direct")) // windows of hundreds, which none times
        continue;
      SCOPED_TRACE(name);
      ASSERT_TRUE(kernels->count(name));
      EXPECT_THAT(kernels->at(name), SizeIs(amounts.size()));
      EXPECT_THAT(kernels->at(name), Each(Ge(0)));
      EXPECT_THAT(kernels->at(name), Contains(Gt(0)));
    }
  }
}

// Which a roofline does not say.
TEST(TypicalCore, SmallProductsAreFarFromThePeak) {
  const DeviceModel core = typical();
  const ProductShape small{1, 8, 8, 8}, large{1, 512, 512, 512};
  const auto share = [&](const ProductShape &s) {
    const double flops = 2.0 * static_cast<double>(s.m * s.n * s.k);
    return flops / core.flopsF32 /
           kernelSeconds(core, productWork(s, core.tile)).value();
  };
  EXPECT_LT(share(small), 0.2);
  EXPECT_GT(share(large), 0.4);
  EXPECT_LT(share(large), 1);
}

TEST(TypicalCore, PairsOfBf16AreMultipliedFaster) {
  const ProductShape shape{1, 256, 256, 256, false, false, true};
  const auto seconds = [&](const DeviceModel &core) {
    return kernelSeconds(core, productWork(shape, core.tile)).value();
  };
  EXPECT_LT(seconds(typical(true)), 0.8 * seconds(typical()));
}

TEST(TypicalCore, IsWhatACpuByItsNameIs) {
  EXPECT_EQ(namedDevice("cpu"), typicalCore(deviceModel("cpu"), {}));
  EXPECT_EQ(namedDevice("h100-sxm"), deviceModel("h100-sxm"));
}

TEST(TypicalCore, WideRegistersAreOfAFasterCore) {
  const DeviceModel core =
      typicalCore(nativeCpu(3.0, 512, int64_t(1) << 34, 1), {14, 16, 2});
  const KernelWork work = generatedWork({100, 100, 100}, false);
  EXPECT_LT(kernelSeconds(core, work).value(),
            0.8 * kernelSeconds(typical(), work).value());
}
