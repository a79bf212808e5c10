//===- Strategy.cpp - evaluation of strategy rows -------------------------===//
#include "compiler/strategy/Strategy.h"

#include "support/Failure.h"
#include "support/UnknownName.h"

#include <algorithm>
#include <iterator>

namespace pipec::strategy {

static constexpr StrategyRow kRows[] = {
#define PIPEC_STRATEGY(name, schedule, versions, update, recompute, summary)   \
  {name, schedule, Versions::versions, Update::update, recompute, summary},
#include "compiler/strategy/Strategies.def"
};

namespace {

/// A microbatch at a stage, in the terms of Versions.def.
struct At {
  int round = 0, step = 0, warmup = 0;
};

struct VersionsRow {
  const char *name;
  int (*phi)(const At &);
  int (*beta)(const At &);
  int (*kept)(const At &);
};

} // namespace

static constexpr VersionsRow kVersions[] = {
#define PIPEC_VERSIONS(id, name, phi, beta, kept, summary)                     \
  {name, [](const At &at) -> int { return phi; },                              \
   [](const At &at) -> int { return beta; },                                   \
   [](const At &at) -> int { return kept; }},
#include "compiler/strategy/Versions.def"
};

static constexpr StrategyRow kFile{"file",       "file", Versions::Latest,
                                   Update::Step, false,  "an order by hand"};

static constexpr StrategyRow kForward{
    "forward-only", "gpipe", Versions::Latest,
    Update::Step,   false,   "forwards in microbatch order"};

bool StrategyRow::synchronous() const {
  return versions == Versions::Latest && update != Update::Round;
}

const StrategyRow &fileStrategy() { return kFile; }
const StrategyRow &forwardStrategy() { return kForward; }

std::span<const StrategyRow> strategies() { return kRows; }

const StrategyRow *findStrategy(std::string_view name) {
  auto it =
      std::find_if(std::begin(kRows), std::end(kRows),
                   [&](const StrategyRow &row) { return row.name == name; });
  return it == std::end(kRows) ? nullptr : it;
}

const StrategyRow &getStrategy(std::string_view name) {
  if (const StrategyRow *row = findStrategy(name))
    return *row;
  std::vector<std::string> known;
  for (const StrategyRow &row : kRows)
    known.emplace_back(row.name);
  known.insert(known.end(), {"auto", "file:S.csv"});
  throw Failure(Exit::Usage, unknownName("strategy", std::string(name), known));
}

const char *toString(Versions versions) {
  return kVersions[static_cast<int>(versions)].name;
}

const char *toString(Update update) {
  switch (update) {
  case Update::Step:
    return "step";
  case Update::Validated:
    return "validated";
  case Update::Round:
    break;
  }
  return "round";
}

int warmup(const Pipeline &pipeline, int stage) {
  int fromHere = 0;
  for (std::size_t s = stage; s < pipeline.replicas.size(); ++s)
    fromHere += pipeline.replicas[s];
  return (fromHere - 1) / pipeline.replicas[stage];
}

static At locate(const Pipeline &pipeline, int stage, int microbatch) {
  return {microbatch / pipeline.replicas[stage],
          microbatch / pipeline.microbatches, warmup(pipeline, stage)};
}

int phi(const StrategyRow &row, const Pipeline &pipeline, int stage,
        int microbatch) {
  return kVersions[static_cast<int>(row.versions)].phi(
      locate(pipeline, stage, microbatch));
}

int beta(const StrategyRow &row, const Pipeline &pipeline, int stage,
         int microbatch) {
  return kVersions[static_cast<int>(row.versions)].beta(
      locate(pipeline, stage, microbatch));
}

int versions(const StrategyRow &row, const Pipeline &pipeline, int stage) {
  return kVersions[static_cast<int>(row.versions)].kept(
      locate(pipeline, stage, 0));
}

int updateEvery(const StrategyRow &row, const Pipeline &pipeline, int stage) {
  return row.update == Update::Round ? pipeline.replicas[stage]
                                     : pipeline.microbatches;
}

schedule::VersionRule versionRule(const StrategyRow &row,
                                  const Pipeline &pipeline) {
  schedule::VersionRule rule;
  rule.phi = [&row, pipeline](int stage, int microbatch) {
    return phi(row, pipeline, stage, microbatch);
  };
  rule.beta = [&row, pipeline](int stage, int microbatch) {
    return beta(row, pipeline, stage, microbatch);
  };
  rule.versions = [&row, pipeline](int stage) {
    return versions(row, pipeline, stage);
  };
  for (std::size_t s = 0; s < pipeline.replicas.size(); ++s)
    rule.updateEvery.push_back(updateEvery(row, pipeline, static_cast<int>(s)));
  return rule;
}

schedule::VersionRule versionRule(const StrategyRow &row,
                                  const schedule::Schedule &schedule) {
  Pipeline pipeline;
  pipeline.microbatches = schedule.microbatches;
  for (int s = 0; s < schedule.stages; ++s)
    pipeline.replicas.push_back(schedule.replicas(s));
  return versionRule(row, pipeline);
}

schedule::Schedule generate(const StrategyRow &row,
                            const schedule::ScheduleRequest &request) {
  schedule::Schedule result = schedule::generate(row.schedule, request);
  result.name = row.name;
  schedule::VerifyOptions options;
  options.versions = versionRule(row, result);
  schedule::verifyOrThrow(result, options);
  return result;
}

} // namespace pipec::strategy
