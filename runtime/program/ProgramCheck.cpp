//===- ProgramCheck.cpp - is every rank's program complete? ---------------===//
#include "runtime/program/Memory.h"
#include "runtime/program/PlanCheck.h"
#include "runtime/program/Sequence.h"

namespace pipec::plan {
namespace {

/// Where an action is; put into words only for one that is wrong.
struct Place {
  int rank;
  size_t index;

  std::string path() const {
    return "ranks[" + std::to_string(rank) + "].program.actions[" +
           std::to_string(index) + "]";
  }
};

/// What has been done of a microbatch on a stage.
struct Done {
  bool F = false, B = false, I = false, W = false;
};

/// A stage as its actions are held against it.
struct Progress {
  RegionSlots counts;     ///< of its regions
  std::vector<Done> done; ///< by microbatch
};

void checkSlots(const Place &place, const Action &action,
                const RegionSlots &counts) {
  for (auto [region, name] : kSlotted) {
    const int count = counts.at(region);
    if (action.slots.has(region)) {
      const int slot = action.slots.at(region);
      if (slot >= count)
        badPlan(place.path() + ".slots." + name,
                "is " + std::to_string(slot) + " of " + std::to_string(count));
    } else if (region != PIPEC_STATS && count > 1 &&
               touches(action.kind[0], region)) {
      badPlan(place.path() + ".slots." + name, "is missing");
    }
  }
}

void checkAction(const Plan &plan, const Place &place,
                 std::vector<Progress> &stages) {
  const Action &action = plan.ranks[place.rank].program.actions[place.index];
  if (action.stage < 0 || action.stage >= static_cast<int>(plan.stages.size()))
    badPlan(place.path() + ".stage", "does not exist");
  const Stage &stage = plan.stages[action.stage];
  if (action.microbatch < 0 || action.microbatch >= plan.training.microbatches)
    badPlan(place.path() + ".microbatch", "is not one of the step's");
  if (stage.ranks.empty() || rankOf(stage, action.microbatch) != place.rank)
    badPlan(place.path() + ".microbatch", "belongs to another rank");
  Progress &progress = stages[action.stage];
  Done &state = progress.done[action.microbatch];
  const std::string &kind = action.kind;
  bool good = false;
  if (kind == "F")
    good = !state.F, state.F = true;
  else if (kind == "B" && !stage.split_backward)
    good = state.F && !state.B, state.B = true;
  else if (kind == "I" && stage.split_backward)
    good = state.F && !state.I, state.I = true;
  else if (kind == "W" && stage.split_backward)
    good = state.I && !state.W, state.W = true;
  if (!good)
    badPlan(place.path(), "('" + kind + "' of microbatch " +
                              std::to_string(action.microbatch) + " on stage " +
                              std::to_string(action.stage) +
                              ") is out of order, repeated or unknown");
  checkSlots(place, action, progress.counts);
}

void checkStep(const Plan &plan) {
  std::vector<Progress> stages(plan.stages.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    for (auto [region, name] : kSlotted)
      stages[s].counts.set(region, regionOf(plan.stages[s], name).slots);
    stages[s].done.resize(plan.training.microbatches);
  }
  bool backward = false;
  for (const Rank &rank : plan.ranks)
    for (size_t i = 0; i < rank.program.actions.size(); ++i) {
      checkAction(plan, {rank.rank, i}, stages);
      backward |= rank.program.actions[i].kind != "F";
    }
  for (const Stage &stage : plan.stages) {
    for (int k = 0; k < plan.training.microbatches; ++k) {
      const Done &state = stages[stage.id].done[k];
      if (!state.F || (backward && !state.B && !state.W))
        badPlan("ranks", "do not finish microbatch " + std::to_string(k) +
                             " on stage " + std::to_string(stage.id));
    }
    const int slots = regionOf(stage, "stats").slots;
    if (regionOf(stage, "stats").bytes && slots != plan.training.microbatches)
      badPlan("stages[" + std::to_string(stage.id) + "].regions.stats.slots",
              "must be one per microbatch");
    if (stage.versions != 1)
      badPlan("stages[" + std::to_string(stage.id) + "].versions",
              "must be 1 when a step updates in place");
  }
}

void checkStream(const Plan &plan) {
  if (plan.training.microbatches != 1)
    badPlan("training.microbatches",
            "must be 1 for a program that updates every microbatch");
  if (plan.training.clip_norm > 0)
    badPlan("training.clip_norm",
            "needs the gradients of all stages at once, which a stream "
            "program never has");
  for (const Rank &rank : plan.ranks) {
    const std::string path = "ranks[" + std::to_string(rank.rank) + "]";
    if (!rank.program.actions.empty())
      badPlan(path + ".program.actions", "must be empty in a stream program");
    if (rank.stages.size() != 1)
      badPlan(path + ".stages", "must be one in a stream program");
  }
  for (const Stage &stage : plan.stages) {
    const std::string path = "stages[" + std::to_string(stage.id) + "]";
    if (stage.split_backward)
      badPlan(path + ".split_backward", "does not go with a stream program");
    if (stage.versions < stage.warmup + 1)
      badPlan(path + ".versions", "must be more than warmup");
    if (regionOf(stage, "stats").bytes &&
        regionOf(stage, "stats").slots < stage.warmup + 1)
      badPlan(path + ".regions.stats.slots", "must be more than warmup");
  }
  if (roundLength(plan) > 1 << 20)
    badPlan("stages", "have replica counts with no small common multiple");
}

} // namespace

void checkTies(const Plan &plan) {
  if (plan.ranks[0].program.kind != "stream")
    return;
  for (const Tie &tie : ties(plan))
    for (auto &[stage, offset] : tie.copies)
      if (plan.stages[stage].ranks.size() !=
          plan.stages[tie.copies[0].first].ranks.size())
        badPlan("stages[" + std::to_string(stage) + "].ranks",
                "differ in number from those of stage " +
                    std::to_string(tie.copies[0].first) +
                    ", with which it shares the weight '" +
                    plan.weights[tie.weight].name + "'");
}

void checkPrograms(const Plan &plan) {
  const std::string &kind = plan.ranks[0].program.kind;
  if ((kind == "stream") != (plan.strategy.update == "round"))
    badPlan("ranks[0].program.kind", "does not go with strategy.update");
  if (kind == "stream")
    checkStream(plan);
  else
    checkStep(plan);
}

} // namespace pipec::plan
