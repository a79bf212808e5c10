#include "compiler/plan/published/PlanBound.h"

#include "compiler/plan/published/CutStates.h"
#include "compiler/plan/published/PipeDreamRow.h"

#include <cstdio>

namespace pipec::published {

namespace {

/// The stage of some level that all others are as fast as.
struct Slowest {
  double seconds = -1;
  const PipeDreamGroup *stage = nullptr;
  size_t level = 0;
  double compute = 0; ///< seconds on one of its machines
  bool isFirst = false;
};

class Bound {
public:
  Bound(const CutStates &states, const std::vector<PipeDreamLevel> &levels,
        const PipeDreamPlan &plan)
      : states(states), levels(levels), plan(plan) {}

  std::string text() const {
    return text(slowest(levels.size() - 1, plan.groups));
  }

private:
  Slowest slowest(size_t level,
                  const std::vector<PipeDreamGroup> &stages) const {
    Slowest worst;
    for (const PipeDreamGroup &stage : stages) {
      const double compute =
          level == 0
              ? states.seconds[stage.after] - states.seconds[stage.before]
              : slowest(level - 1, stage.within).seconds;
      const bool isFirst = &stage == &stages.front();
      const double seconds =
          stageSeconds(states, levels, level, stage, compute, isFirst);
      if (seconds > worst.seconds)
        worst = {seconds, &stage, level, compute, isFirst};
    }
    return worst;
  }

  std::string text(const Slowest &worst) const {
    const PipeDreamGroup &stage = *worst.stage;
    const double each = worst.compute / stage.machines;
    const double exchange = withExchange(worst) - each;
    if (worst.seconds > withExchange(worst) * (1 + 1e-9))
      return cut(stage, worst.seconds);
    if (exchange > worst.seconds * 1e-9)
      return name(stage) + " on " + std::to_string(stage.machines) +
             " machines: " + milliseconds(each) + " of compute and " +
             milliseconds(exchange) + " of gradient exchange";
    if (worst.level > 0) // nothing of its own
      return text(slowest(worst.level - 1, stage.within));
    return "compute of " + name(stage);
  }

  /// Without what its cuts carry.
  double withExchange(const Slowest &worst) const {
    if (worst.isFirst) // of a component: it pays for none
      return worst.seconds;
    const PipeDreamGroup &stage = *worst.stage;
    const double weights =
        states.weights[stage.after] - states.weights[stage.before];
    return (worst.compute +
            weights * exchangePerByte(levels[worst.level], 1, stage.machines)) /
           stage.machines;
  }

  /// The one of a stage's two cuts that carries more.
  std::string cut(const PipeDreamGroup &stage, double seconds) const {
    const bool atEnd = stage.after + 1 == states.size();
    const bool isBefore =
        atEnd || states.cut[stage.before] >= states.cut[stage.after];
    const size_t behind =
        isBefore ? stageFrom(stage.before) : stageFrom(stage.after);
    return "the cut between stages " + std::to_string(behind - 1) + " and " +
           std::to_string(behind) + ": " + milliseconds(seconds);
  }

  size_t stageFrom(size_t state) const {
    size_t s = 0;
    while (s < plan.stages.size() && plan.stages[s].before != state)
      ++s;
    return s;
  }

  /// "stage 2", or "stages 2-4" where it consists of several.
  std::string name(const PipeDreamGroup &stage) const {
    const size_t first = stageFrom(stage.before);
    size_t last = first;
    while (plan.stages[last].after != stage.after)
      ++last;
    return first == last
               ? "stage " + std::to_string(first)
               : "stages " + std::to_string(first) + "-" + std::to_string(last);
  }

  static std::string milliseconds(double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g ms", seconds * 1000);
    return text;
  }

  const CutStates &states;
  const std::vector<PipeDreamLevel> &levels;
  const PipeDreamPlan &plan;
};

} // namespace

std::string boundOf(const CutStates &states,
                    const std::vector<PipeDreamLevel> &levels,
                    const PipeDreamPlan &plan) {
  return Bound(states, levels, plan).text();
}

} // namespace pipec::published
