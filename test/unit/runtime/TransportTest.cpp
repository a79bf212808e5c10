//===- TransportTest.cpp - every row of transports.def --------------------===//
#include "runtime/transport/Transport.h"
#include "support/Failure.h"
#include "test/unit/runtime/RunTool.h"
#include "test/unit/runtime/TestModel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipec::test {
namespace {

class EveryTransport : public testing::TestWithParam<TransportRow> {};

TEST_P(EveryTransport, Conforms) {
  for (int ranks : {2, 3, 5}) {
    const std::string folder = freshFolder("transport");
    const Outcome run =
        Process({PIPEC_CONFORMANCE, GetParam().name, std::to_string(ranks)},
                folder)
            .wait(60);
    EXPECT_EQ(run.code, 0) << ranks << " ranks: " << run.errors;
  }
}

INSTANTIATE_TEST_SUITE_P(Transport, EveryTransport,
                         testing::ValuesIn(transports()),
                         [](auto &info) { return info.param.name; });

TEST(Transport, ListsTheNamesThereAre) {
  try {
    transportNamed("pigeon");
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::Usage);
    for (const TransportRow &row : transports())
      EXPECT_THAT(failure.what(), testing::HasSubstr(row.name));
  }
}

} // namespace
} // namespace pipec::test
