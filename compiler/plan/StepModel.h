//===- StepModel.h - the predicted time and memory of one plan --*- C++ -*-===//
//
// The judge of every search: generates the strategy's schedule for a split,
// runs it through the schedule library's simulator and adds what a step needs
// besides (gradient all-reduce, update). Searches use cheaper surrogates and
// come here for the verdict.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/IntervalCosts.h"
#include "compiler/plan/Planner.h"
#include "compiler/schedule/Schedule.h"
#include "compiler/schedule/SharedCores.h"
#include "compiler/schedule/SpareSlots.h"

#include <memory>
#include <optional>

namespace pipec::plan {

/// A complete choice: stages as first nodes, replicas and recomputation of
/// each.
struct Split {
  std::vector<size_t> starts;
  std::vector<int> replicas;
  std::vector<bool> recompute; ///< empty: none
  /// Replica q of every stage in the q-th block of devices (uniform replicas):
  /// pipelines stay inside servers and all-reduces cross them. Otherwise each
  /// stage's replicas are neighbours.
  bool pipelinesInside = false;
  /// Devices of each stage where a planner places them itself; empty: as above.
  std::vector<std::vector<int>> devices{};
  /// How each stage's operators are sharded; empty: not. With `devices`, of
  /// which each is then the first of a group.
  std::vector<StageSharding> shardings{};

  bool operator==(const Split &) const = default;
};

/// What one replica of a stage keeps at its peak, in slots (driver/Slots).
struct Keeps {
  int inFlight = 1, versions = 1;
  bool undo = false;     ///< weights and optimizer state from before an update
  int received = 1;      ///< microbatches' values from before and data
  int receivedBack = 1;  ///< gradients from behind
  int betweenHalves = 1; ///< handed from input to weight gradients
  int sent = 2;          ///< of each direction, on their way
  int holders = 1;       ///< of its weights, which sum their gradients
};
Keeps keepsAt(const PlanRequest &request, const StagePosition &position,
              int spareSlots);
/// Where it is not known what the stages send.
Keeps keepsAt(const PlanRequest &request, const StagePosition &position);

/// Of gradients that so many sum, what each sums.
int64_t sliceOf(int64_t gradients, int holders);

/// Bytes of a candidate stage as a function of what it keeps: searches ask for
/// many positions of one interval.
struct ByteRates {
  int64_t fixed = 0, perVersion = 0, perFlight = 0;
  int64_t again = 0; ///< in place of perFlight where all is computed again
  int64_t undo = 0;  ///< where an update may not stand
  int64_t perReceived = 0, perReceivedBack = 0, perHalf = 0, perSent = 0;
  int64_t gradients = 0; ///< of fixed what holders of the weights sum
  int64_t leaves = 0;    ///< of perSent what longer stages may not send
  int64_t piece = 0;     ///< of gradients that are summed at a time
  int stages = 1;        ///< of a device, which sum one after the other
  int64_t total(const Keeps &keeps, bool recompute) const {
    return fixed + (recompute ? again : perFlight * keeps.inFlight) +
           perVersion * keeps.versions + (keeps.undo ? undo : 0) +
           perReceived * keeps.received + perReceivedBack * keeps.receivedBack +
           perHalf * keeps.betweenHalves + perSent * keeps.sent +
           (keeps.holders > 1 ? sumsOf(keeps.holders) : 0);
  }
  /// Of the same stage with more nodes behind at least.
  int64_t least(const Keeps &keeps, bool recompute) const {
    return total(keeps, recompute) - perReceivedBack * keeps.receivedBack -
           leaves * keeps.sent;
  }
  /// Of the slices that one holder gets of the others.
  static int64_t sums(int64_t gradients, int holders, int64_t piece) {
    return (holders - 1) * std::min(piece, sliceOf(gradients, holders));
  }

private:
  /// Without the division where slices are longer than a piece, as mostly.
  int64_t sumsOf(int holders) const {
    const int64_t all = gradients >= piece * holders
                            ? (holders - 1) * piece
                            : sums(gradients, holders, piece);
    return stages > 1 ? all / stages : all;
  }
};

/// Seconds of the optimizer's update a byte of trainable weights.
double updateSecondsPerByte(const PlanRequest &request);

class StepModel {
public:
  StepModel(const PlanRequest &request, const IntervalCosts &costs);

  /// Everything about the plan; baselines and search facts are left empty.
  PlanResult price(const Split &split) const;
  /// The stages of the plan, with their times and bytes.
  std::vector<StagePlan> layOut(const Split &split) const;
  /// Bytes of the fullest device.
  int64_t peakOf(const Split &split) const;
  /// The step time alone, +inf when a device exceeds the limit.
  double stepSeconds(const Split &split) const;

  int64_t limit() const { return memoryLimit; }
  /// Whether a stage that has `limit` bytes computes its activations again: as
  /// the request says, or where they do not fit otherwise. Nothing where it
  /// does not fit.
  std::optional<bool> recomputes(const ByteRates &bytes, const Keeps &keeps,
                                 int64_t limit) const {
    const bool isAsked = asked.recompute == Recompute::Full;
    if (bytes.total(keeps, isAsked) <= limit)
      return isAsked;
    hasBound = true;
    if (asked.recompute == Recompute::Auto && bytes.total(keeps, true) <= limit)
      return true;
    return std::nullopt;
  }
  /// Whether a stage or a split was found not to fit, or to compute again for
  /// it: without that the limit has decided nothing.
  bool limitBinds() const { return hasBound; }
  const PlanRequest &request() const { return asked; }
  const IntervalCosts &intervals() const { return costs; }

  /// What a device does and keeps of stage `s`, with its share of what the
  /// stage shards.
  StageCost costOf(const Split &split, size_t s) const;
  /// Memory of one replica of a stage that keeps so much at its peak.
  MemoryParts memory(const StageCost &cost, const Keeps &keeps,
                     bool recompute) const;
  /// The same as a function of what is kept: equals memory().total(), less what
  /// the workspace of a device's other stages, taken to be as large, saves.
  ByteRates byteRates(const StageCost &cost) const;
  /// Seconds of the optimizer's update of that many weight bytes.
  double updateSeconds(int64_t parameterBytes) const;
  /// Actions that pricing a split of that many stages and replicas simulates;
  /// searches bound their effort by it.
  int64_t effort(const std::vector<int> &replicas) const;
  /// Splits that were simulated so far.
  int64_t simulations() const { return simulated; }

private:
  schedule::Sends sendsOf(const std::vector<StagePlan> &stages) const;
  double simulateStep(const std::vector<StagePlan> &stages) const;
  double synchronousStep(const std::vector<StagePlan> &stages) const;
  double steadyPeriod(const std::vector<StagePlan> &stages) const;
  void explain(PlanResult &result) const;
  /// The devices of the split's stages. The last ones are kept, since a search
  /// mostly moves cuts, and are good until the next call.
  const std::vector<std::vector<int>> &
  assignedDevices(const Split &split) const;
  struct Assigned {
    std::vector<int> replicas;
    bool inside;
    std::vector<std::vector<int>> devices;
  };
  mutable std::optional<Assigned> assigned;

  /// The schedule for stages on these devices, and what follows from both
  /// alone: the last as well, until the next call.
  struct Placed {
    std::vector<std::vector<int>> devices; ///< by stage
    std::vector<int> replicas;             ///< by stage
    std::shared_ptr<const schedule::Schedule> order;
    std::vector<std::vector<int>> held; ///< stages, by device of the order
    std::vector<int> ahead;             ///< forwardsAhead()
    double ranksPerCore = 0;
    schedule::CoreSharing sharing;
    bool isScarce = false; ///< whether devices take turns on cores
  };
  const Placed &placedOn(const std::vector<StagePlan> &stages) const;
  mutable std::optional<Placed> placed;

  mutable int64_t simulated = 0;
  mutable bool hasBound = false;

  void addMemory(const Split &split, std::vector<StagePlan> &stages) const;
  void addSumsOfCopies(std::vector<StagePlan> &stages) const;

  const PlanRequest &asked;
  const IntervalCosts &costs;
  int64_t memoryLimit;
  double updatePerByte;                   ///< s a byte of trainable weights
  std::vector<const CostWeight *> copied; ///< that several stages may hold
};

/// Devices of every stage: neighbours stage by stage, or, with `inside` and
/// equal replicas, one block of devices per pipeline. A strategy with chunks
/// places stages as its schedule says.
std::vector<std::vector<int>> assignDevices(const StrategyFacts &facts,
                                            const std::vector<int> &replicas,
                                            bool inside);

} // namespace pipec::plan
