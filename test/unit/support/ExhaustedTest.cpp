//===- ExhaustedTest.cpp - a process that has no more of something --------===//
#include "support/Exhausted.h"

#include <filesystem>
#include <functional>
#include <gtest/gtest.h>

namespace pipec {

static Failure told(const std::function<void()> &work) {
  try {
    whileItLasts(work);
  } catch (const Failure &failure) {
    return failure;
  }
  return {Exit::Ok, ""};
}

TEST(Exhausted, MemoryAndThreadsEndWithTheirRemedy) {
  const Failure memory = told([] { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code, Exit::NoFit);
  EXPECT_EQ(memory.what(), "this process gets no more memory" + addressLimit() +
                               "; raise what limits it, or give it less to do");
  const Failure thread = told([] {
    throw std::system_error(
        make_error_code(std::errc::resource_unavailable_try_again));
  });
  EXPECT_EQ(thread.code, Exit::Unavailable);
  EXPECT_EQ(thread.what(),
            "no thread or process can be started: Resource temporarily "
            "unavailable" +
                addressLimit() +
                "; there may be a limit on them (ulimit -u, or that of a "
                "container): raise it");
}

TEST(Exhausted, OtherErrorsPass) {
  EXPECT_EQ(told([] { throw Failure(Exit::BadPlan, "mine"); }).code,
            Exit::BadPlan);
  EXPECT_THROW(whileItLasts([] { return std::filesystem::file_size("none"); }),
               std::filesystem::filesystem_error);
}

} // namespace pipec
