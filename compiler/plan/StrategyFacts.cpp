#include "compiler/plan/StrategyFacts.h"

#include "support/Failure.h"

#include <algorithm>

namespace pipec::plan {

namespace {

/// Microbatches of a step that one replica handles.
int share(const StagePosition &p) {
  return (p.microbatches + p.replicas - 1) / p.replicas;
}

/// Forwards that precede a replica's first backward, that one included:
/// ceil(devices from here on / replicas) (PipeDream section 3.2).
int warm(const StagePosition &p) {
  return (p.devicesFromHere + p.replicas - 1) / p.replicas;
}

const std::vector<StrategyFacts> &rows() {
  static const std::vector<StrategyFacts> all = [] {
    std::vector<StrategyFacts> facts;
#define STRATEGY(NAME, SCHEDULE, SHAPE, SYNCHRONOUS, INFLIGHT, VERSIONS,       \
                 REPLICATES)                                                   \
  {                                                                            \
    StrategyFacts f;                                                           \
    f.name = NAME;                                                             \
    f.schedule = SCHEDULE;                                                     \
    f.shape = Shape::SHAPE;                                                    \
    f.synchronous = SYNCHRONOUS;                                               \
    f.inFlight = [](const StagePosition &p) -> int {                           \
      return (void)p, INFLIGHT;                                                \
    };                                                                         \
    f.versions = [](const StagePosition &p) -> int {                           \
      return (void)p, VERSIONS;                                                \
    };                                                                         \
    f.replicates = REPLICATES;                                                 \
    facts.push_back(f);                                                        \
  }
#include "compiler/plan/StrategyFacts.def"
    return facts;
  }();
  return all;
}

} // namespace

StrategyFacts strategyFacts(const std::string &name) {
  std::string names;
  for (const StrategyFacts &facts : rows()) {
    if (facts.name == name)
      return facts;
    names += (names.empty() ? "" : ", ") + facts.name;
  }
  throw Failure(Exit::Usage, "the planner knows no strategy '" + name +
                                 "'; there are: " + names);
}

std::vector<std::string> strategyFactNames() {
  std::vector<std::string> names;
  for (const StrategyFacts &facts : rows())
    names.push_back(facts.name);
  return names;
}

} // namespace pipec::plan
