//===- Strategy.h - named training systems as data --------------*- C++ -*-===//
//
// A strategy is a schedule, the weight version each pass reads (phi for the
// forward, beta for the backward), when weights are updated and whether
// activations are recomputed. Planner, verifier, runtime tables and reports
// evaluate the same rows; none of them knows a strategy by name.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Verifier.h"

#include <span>
#include <string_view>
#include <vector>

namespace pipec::strategy {

enum class Versions {
#define PIPEC_VERSIONS(id, ...) id,
#include "compiler/strategy/Versions.def"
};

enum class Update {
  Step,      ///< once per optimizer step
  Validated, ///< the same, without waiting for other stages: the update is
             ///< validated, and made again if need be, during the next step
  Round,     ///< after one microbatch on each copy of the stage
};

struct StrategyRow {
  const char *name;
  const char *schedule; ///< a row of `pipec list schedules`, or "auto"
  Versions versions;
  Update update;
  bool recompute;
  const char *summary;

  /// Whether every step computes exactly what one device would.
  bool synchronous() const;
};

std::span<const StrategyRow> strategies();
/// nullptr when there is none of that name.
const StrategyRow *findStrategy(std::string_view name);
/// Throws Failure(Usage) listing the names there are.
const StrategyRow &getStrategy(std::string_view name);

/// Not a row: an order that comes from a file. Synchronous.
const StrategyRow &fileStrategy();
/// Not a row: nothing is trained with it.
const StrategyRow &forwardStrategy();

/// "latest", "stash".
const char *toString(Versions versions);
/// "step", "validated", "round".
const char *toString(Update update);

/// The pipeline a strategy is applied to.
struct Pipeline {
  std::vector<int> replicas; ///< per stage
  int microbatches = 1;      ///< per optimizer step, over the whole cluster
};

/// \name What a strategy means for one stage. Microbatches count on over
/// optimizer steps, versions count updates of the stage from 0.
/// @{
/// Forwards of a copy before its first backward, less one: the w_s of
/// PipeDream, floor((copies from here on - 1) / copies). 0 in strategies that
/// do not depend on it.
int warmup(const Pipeline &pipeline, int stage);
int phi(const StrategyRow &row, const Pipeline &pipeline, int stage,
        int microbatch);
int beta(const StrategyRow &row, const Pipeline &pipeline, int stage,
         int microbatch);
/// Weight versions a copy holds at once.
int versions(const StrategyRow &row, const Pipeline &pipeline, int stage);
/// Backwards of the stage, over all copies, between two updates.
int updateEvery(const StrategyRow &row, const Pipeline &pipeline, int stage);
/// @}

/// The same for the schedule verifier.
schedule::VersionRule versionRule(const StrategyRow &row,
                                  const Pipeline &pipeline);
/// The same, where the pipeline is the one that the schedule describes.
schedule::VersionRule versionRule(const StrategyRow &row,
                                  const schedule::Schedule &schedule);

/// The strategy's schedule with its name in place of the schedule's. For an
/// asynchronous strategy `request.microbatches` is the length of the window.
/// Verified, version availability included.
schedule::Schedule generate(const StrategyRow &row,
                            const schedule::ScheduleRequest &request);

} // namespace pipec::strategy
