//===- BruteForce.h - how many random graphs are tried ----------*- C++ -*-===//
#pragma once

#include <cstdlib>

namespace pipec::plan::test {

/// Rounds of a test that compares with brute force: `usual`, or more where
/// test/bench/plan_bruteforce.py asks for it.
inline int rounds(int usual) {
  const char *times = std::getenv("PIPEC_BRUTE_FORCE_TIMES");
  const int factor = times ? std::atoi(times) : 1;
  return usual * (factor > 1 ? factor : 1);
}

} // namespace pipec::plan::test
