//===- ClimbToLimit.cpp - the most a planner can be given -----------------===//
#include "compiler/driver/ClimbToLimit.h"

#include "support/Failure.h"

#include <algorithm>

namespace pipec {
namespace {

/// Halvings of the way.
constexpr int kMostTries = 5;
/// What is shorter than this part of the limit is no way.
constexpr int64_t kShortest = 128;

} // namespace

Found climbed(const Found &found, const Trial &trial) {
  const int64_t limit = found.first.memoryLimit;
  Found best = found;
  // Bytes that the planner is given less than there are.
  int64_t fits = found.first.memoryMargin, over = -limit / kShareTooMuch;
  for (int tries = 0; tries < kMostTries && fits - over > limit / kShortest;
       ++tries) {
    CompileOptions asked = found.first;
    asked.memoryMargin = over + (fits - over) / 2;
    try {
      const Prospect made = trial(asked);
      fits = asked.memoryMargin;
      if (made.seconds < best.second.seconds)
        best = {asked, made};
    } catch (const OverLimit &isOver) {
      // Whatever is not below what it was taken for makes the same plan.
      over = asked.memoryMargin;
      if (isOver.planned > 0)
        over = std::max(over, limit - isOver.planned + 1);
    } catch (const Failure &failure) { // the plan that there is stays one
      if (failure.code != Exit::NoFit)
        throw;
      fits = asked.memoryMargin;
    }
  }
  return best;
}

} // namespace pipec
