//===- SampleTest.cpp - the plan that the other tests use is one ---------===//
#include "SamplePlan.h"

#include <gtest/gtest.h>

namespace pipec {

TEST(SamplePlan, IsValid) {
  for (bool stream : {false, true})
    for (int replicas : {1, 2})
      EXPECT_NO_THROW(plan::checkPlan(samplePlan({4, 8, replicas, stream})))
          << stream << replicas;
}

} // namespace pipec
