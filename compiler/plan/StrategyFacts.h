//===- StrategyFacts.h - what a strategy costs ------------------*- C++ -*-===//
//
// The few facts about a training strategy that decide time and memory. The
// planner knows no strategy by name: it reads these. Facts of the classic
// systems are rows of StrategyFacts.def; other ones are filled in by the
// caller.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pipec::schedule {
struct Schedule;
struct Sends;
} // namespace pipec::schedule

namespace pipec::plan {

/// Where a stage stands in its pipeline.
struct StagePosition {
  int stage = 0;
  int stages = 1;
  int replicas = 1;        ///< of this stage
  int devicesFromHere = 1; ///< Σ replicas of this stage and all later ones
  int microbatches = 1;    ///< in a step, over the whole cluster
};

/// Which formula bounds a step from below; the schedule's own simulation
/// decides.
enum class Shape {
  DataParallel, ///< one stage on all devices, each a share of the microbatches
  Naive,        ///< one microbatch at a time through all stages
  GPipe,        ///< all forwards, then all backwards
  OneFOneB      ///< warm-up forwards, then one backward for each forward
};

struct StrategyFacts {
  std::string name;
  /// A row of `pipec list schedules`: generated and simulated to price a plan.
  std::string schedule;
  /// The order itself where it is fixed; then it decides how many stages there
  /// are and where they live, and nothing is generated.
  std::shared_ptr<const schedule::Schedule> order;
  Shape shape = Shape::OneFOneB;
  /// Stages on each device (interleaving).
  int chunks = 1;
  /// Copies of the whole pipeline that share the devices in opposite order.
  int copies = 1;
  /// Pieces that a schedule cuts the sequences of a microbatch into; 0: as many
  /// as it does by itself.
  int slices = 0;
  /// I and W are separate tasks.
  bool splitBackward = false;
  /// Synchronous: gradients accumulate over the step's microbatches, and the
  /// pipeline drains. Asynchronous: it never does.
  bool synchronous = true;
  /// Of synchronous ones: a barrier ends every step. Without it a device
  /// updates when it is done, and begins the next step's first forwards while
  /// others still work (post-validation).
  bool barrier = true;
  /// Copies of the gradients a device holds (1: an accumulator).
  double gradientCopies = 1;
  /// Microbatches whose stash one replica of the stage holds at the peak.
  std::function<int(const StagePosition &)> inFlight;
  /// Of those the ones whose input gradient is computed and whose weight
  /// gradient is not, 1 where one task computes both; none: 1.
  std::function<int(const StagePosition &)> betweenHalves;
  /// Slots for messages that come early, beside the one that all stages have,
  /// where stages send to each other like this; none: 0.
  std::function<int(const StagePosition &, const schedule::Sends &)> spareSlots;
  /// Weight versions one replica holds at the peak, the live one included.
  std::function<int(const StagePosition &)> versions;
  /// The schedule takes replicated stages, of each as many as wanted.
  bool replicates = true;
  /// Whole pipelines may stand beside each other, which gives each stage as
  /// many copies (schedule/Pipelines), where a barrier ends every step: who
  /// takes updates back does not wait for copies.
  bool severalPipelines = false;
  /// Orders are searched for, which of a great many tasks takes seconds.
  bool searches = false;

  /// Whether stages may have several copies at all, on devices of their own.
  bool takesCopies() const {
    return (severalPipelines && barrier) ||
           (replicates && chunks == 1 && copies == 1);
  }
};

/// The row of that name ("dp", "naive", "gpipe", "1f1b", "pipedream", "2bw"),
/// or the facts of any schedule of that name: its placement, and what its own
/// order keeps in flight. `chunks` (0: the schedule's default) counts where it
/// has a choice, `slices` pieces of a sequence where it has them.
/// Failure(Exit::Usage) lists the names there are.
StrategyFacts strategyFacts(const std::string &name, int chunks = 0,
                            int slices = 0);

/// The facts of one fixed synchronous order.
StrategyFacts factsOfOrder(schedule::Schedule order);

} // namespace pipec::plan
