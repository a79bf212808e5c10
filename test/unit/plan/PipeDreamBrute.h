//===- PipeDreamBrute.h - small profiles and all of their plans -*- C++ -*-===//
#pragma once

#include "compiler/plan/published/EveryPlan.h"
#include "compiler/plan/published/StraddleSearch.h"

#include <string>
#include <vector>

namespace pipec::plan::test {

class Random;

/// A node of a profile's text: `ms` forward and backward, a third of it
/// forward; bytes of its activation and of its weights.
std::string profileLine(const std::string &id, const std::string &what,
                        double ms, double act, double par);

/// A connected random profile with free nodes, forks and an input.
published::PipeDreamProfile randomProfile(Random &random, int nodes);

/// A chain of layers that differ up to forty times in what they take.
published::PipeDreamProfile randomChain(Random &random, int nodes);

/// One to four levels of few machines, innermost first.
std::vector<published::PipeDreamLevel> randomLevels(Random &random, int depth);

/// Seconds of the best plan, by plain recursion over the published formulas.
double bruteNested(const published::PipeDreamProfile &profile,
                   const std::vector<published::PipeDreamLevel> &levels);

/// The same of the plans whose stages keep at most `limit` bytes; infinite
/// where there is none.
double bruteWithin(const published::PipeDreamProfile &profile,
                   const std::vector<published::PipeDreamLevel> &levels,
                   double limit);

/// Best over all sequences of stages on consecutive devices, over the cuts that
/// the search may use; of exactly `total` devices (0: all of them, and under a
/// limit of any number).
double straddlingBrute(const published::CutStates &states,
                       const std::vector<published::PipeDreamLevel> &levels,
                       int total = 0, double limit = 0);

} // namespace pipec::plan::test
