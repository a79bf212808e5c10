//===- Generator.h - named schedules ----------------------------*- C++ -*-===//
//
// One file and one row of Schedules.def per generator. A generator is a pure
// function from a request to a Schedule.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/schedule/Costs.h"
#include "compiler/schedule/Schedule.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pipec::schedule {

enum class Metric {
  Makespan, ///< last end - first start over all devices
  Span,     ///< max over devices of own last end - own first start
};

constexpr int kAutoChunks = -1;
/// Pieces of a sequence where a schedule has them and nobody says how many.
constexpr int kDefaultSlices = 4;

/// What is asked of a generator. Cost-blind generators read sizes only.
struct ScheduleRequest {
  int devices = 1;      ///< in all; with `replicas`, their sum
  int microbatches = 1; ///< in one optimizer step
  /// Stages per device. 0: the schedule's default; kAutoChunks: the best up
  /// to 4.
  int chunks = 0;
  /// Copies of each stage (gpipe, 1f1b, naive, pipedream, dp); empty: one each.
  std::vector<int> replicas;
  /// Forwards before the first backward, per stage and copy (1f1b: DAPPLE's
  /// K_i); empty: the schedule's default.
  std::vector<int> warmup;
  /// Sequence pieces per microbatch (seq1f1b). 0: the schedule's default.
  int slices = 0;

  int groupSize = 0; ///< microbatches per chunk turn (interleaved); 0: devices
  DeviceCosts costs; ///< empty lists: one unit each
  /// Costs of each stage, where the caller knows the stages: they take the
  /// place of `costs`, but for its limits, on placements of so many stages.
  std::optional<Costs> stageCosts;
  Metric metric = Metric::Makespan;
  double effort = 1; ///< of searched schedules: their time grows with it
};

enum class Layout { Linear, Looped, Zigzag, Bidirectional, Replicated };
enum class ChunkRule {
  One,  ///< one stage per device
  Two,  ///< exactly two
  Free, ///< any number, two by default
};

/// The option of a request that one schedule has and others do not.
enum class Extra {
  None,
  Warmup,    ///< ScheduleRequest::warmup
  GroupSize, ///< ScheduleRequest::groupSize
  Slices,    ///< ScheduleRequest::slices
};

struct ScheduleRow {
  const char *name;
  const char *summary;
  const char *source; ///< where it was published
  Layout layout;
  ChunkRule chunks;
  bool synchronous;   ///< flushes once per optimizer step
  bool splitBackward; ///< I and W apart
  bool replicates;    ///< takes ScheduleRequest::replicas
  Extra extra;
  bool readsCosts;
  Schedule (*make)(const ScheduleRequest &);
};

/// All rows, in the order of Schedules.def.
std::span<const ScheduleRow> schedules();
/// nullptr when there is none of that name.
const ScheduleRow *findSchedule(std::string_view name);
/// "auto" as well; Failure(Usage), with the names there are, for none.
const ScheduleRow &getSchedule(std::string_view name);

/// Generates by name, or the best found over all rows and more for "auto".
/// Searched schedules stay within request.costs.limit, or throw Failure(NoFit)
/// naming the least limit that would do; others ignore it. Throws
/// Failure(Usage) for an unknown name or a request the schedule cannot serve,
/// naming the number that would do.
Schedule generate(std::string_view name, const ScheduleRequest &request);

/// The least request.metric that any order can have: on the placement of
/// `schedule`, or for "auto" on all that it searches. Nothing where stages have
/// copies or microbatches slices.
std::optional<double> lowerBound(std::string_view name,
                                 const Schedule &schedule,
                                 const ScheduleRequest &request);

/// What the stages of a placement cost by `request`; limits included.
Costs costsOn(const std::vector<std::vector<int>> &placement,
              const ScheduleRequest &request);
/// The same for the actions of `schedule`, which may be slices.
Costs costsFor(const Schedule &schedule, const ScheduleRequest &request);

} // namespace pipec::schedule
