//===- WithinLimit.cpp - plans that keep to the memory there is -----------===//
#include "compiler/driver/WithinLimit.h"

#include "compiler/driver/ClimbToLimit.h"
#include "compiler/driver/Remedies.h"
#include "compiler/driver/RememberedTrial.h"
#include "compiler/driver/SmallestPlan.h"
#include "compiler/plan/Infeasible.h"
#include "report/Format.h"

#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pipec {
namespace {

/// Tries before a plan is said not to fit.
constexpr int kMostTries = 8;
/// Of these between a plan that is too large and what the planner refuses.
constexpr int kMostBetween = 3;

/// The next of 4/4, 5/4, 6/4, 7/4 of a power of two.
int64_t nextLower(int64_t bytes) {
  int64_t power = 1;
  while (2 * power < bytes)
    power *= 2;
  const int64_t step = std::max<int64_t>(1, power / 4);
  return std::max<int64_t>(1, (bytes - 1) / step * step);
}

plan::NoFit tooLarge(const OverLimit &over) {
  return plan::NoFit(shortageOf("needs", over.bytes,
                                "rank " + std::to_string(over.rank),
                                over.limit),
                     {{plan::Remedy::Limit, over.bytes}},
                     std::string("more stages, smaller microbatches or another "
                                 "strategy") +
                         (over.slices > 1 ? ", or a smaller --slices," : "") +
                         " may need less",
                     over.limit);
}

/// Names of strategies. No property of a row says what keeps little or is worth
/// a plan of its own: of a new row of Strategies.def somebody has to. A name
/// that goes away there goes away here (WithinLimitTest looks).
using Names = std::span<const char *const>;
/// What takes part and may be the fastest that fits, and all that does. Of each
/// way to keep little one that is quick to plan, as every one of them costs a
/// compilation: one stage a device in order (1f1b, zb-h1 where weight gradients
/// fill the bubble), two stages as a V in half and a third of that memory, one
/// microbatch at a time, none at all (dp, whose activations are of a share of
/// the microbatches), and what keeps more where there is room for it (gpipe,
/// zb-h2). `auto` last: it takes the longest, and ends early behind another.
constexpr const char *kRivals[] = {"1f1b", "v-half", "gpipe", "zb-h1", "zb-h2",
                                   "dp",   "v-min",  "naive", "auto"};
constexpr const char *kAll[] = {"auto"};
/// Orders that are searched for, of two stages a device and of one: a quick
/// look misses more of them than of others.
constexpr const char *kSearched[] = {"zb-v", "zb"};
/// What keeps least of all, for what else may fit: of one microbatch, whatever
/// the number of stages.
constexpr const char *kLeast[] = {"naive"};

/// What the planner is given after a plan that is over the limit: less than it
/// took the plan for, or that would come again, and by what it took it for too
/// little: mostly what the tasks work in, which most plans need alike.
int64_t givenAfter(const OverLimit &over, int64_t given) {
  if (over.planned <= 0)
    return nextLower(given);
  const int64_t beside = std::max<int64_t>(0, over.bytes - over.planned);
  // Where the estimate is far off that would be too little, or nothing.
  const double share =
      static_cast<double>(over.limit) / static_cast<double>(over.bytes);
  const auto least =
      static_cast<int64_t>(0.75 * share * static_cast<double>(over.planned));
  return std::max<int64_t>(1, std::min(std::min(over.planned, given) - 1,
                                       std::max(over.limit - beside, least)));
}

/// The same in small steps, whatever was lacking: quarters of powers of two,
/// the same ones whatever the limit.
int64_t quarterAfter(const OverLimit &over, int64_t given) {
  return nextLower(over.planned > 0 ? std::min(over.planned, given) : given);
}

using Stride = int64_t (*)(const OverLimit &over, int64_t given);

/// Whether the planner is asked again where it refuses at once.
enum class Asked { Once, Again };

/// What the planner is given, try after try.
struct Steps {
  Stride next;
  int64_t given = 0;   ///< now
  int64_t below = 0;   ///< less than the last plan by a byte
  int64_t refused = 0; ///< the most that it found nothing with
  int between = 0;     ///< tries above that

  /// After a plan that is too large: large steps down to what was refused, from
  /// there on plan by plan. False at the end.
  bool goDown(const OverLimit &over) {
    below = (over.planned > 0 ? std::min(over.planned, given) : given) - 1;
    given = next(over, given);
    if (given <= refused)
      given = below, ++between;
    return given > refused && between <= kMostBetween;
  }
  /// After a refusal: to what lies between it and the last plan.
  bool goBack() {
    refused = given;
    given = below;
    return given > refused && between++ < kMostBetween;
  }
};

/// With less and less for the planner, from what the options leave it on; what
/// fits stays in the options. Nothing where all plans are too large, `least`
/// the smallest of them; ends early at one as slow as a `rival` that fits: less
/// memory does not make it faster. What the planner refuses at once it may take
/// for too much: it is asked again, with `Again`, without what code works in.
template <typename Plans>
auto stepping(CompileOptions &options, const Plans &plans,
              std::optional<double> rival, std::optional<OverLimit> &least,
              Asked often, Stride stride = givenAfter)
    -> std::optional<decltype(plans(options))> {
  std::optional<Steps> steps;
  std::exception_ptr refusal; // at once
  int64_t limit = 0;
  for (int tries = 1;; ++tries) {
    bool goesOn = true;
    try {
      return plans(options);
    } catch (const OverLimit &over) {
      if (!least || over.bytes < least->bytes)
        least = over;
      limit = over.limit;
      if (!steps)
        steps.emplace(Steps{stride, limit - options.memoryMargin});
      goesOn = steps->goDown(over) && !(rival && over.seconds >= *rival);
    } catch (const Failure &failure) {
      if (failure.code != Exit::NoFit)
        throw;
      if (steps) {
        goesOn = steps->goBack();
      } else if (often == Asked::Again && !options.withoutWorkspace) {
        refusal = std::current_exception();
        options.withoutWorkspace = options.quick = true;
        continue;
      } else {
        std::rethrow_exception(refusal ? refusal : std::current_exception());
      }
    }
    if (!goesOn || tries == kMostTries) {
      if (refusal && !least)
        std::rethrow_exception(refusal);
      return std::nullopt;
    }
    options.memoryMargin = limit - steps->given;
    options.quick = true;
  }
}

/// The same in two strides for what keeps least, behind which nothing else is
/// tried; and where the planner chooses about recomputation and came to nothing
/// else with everything computed again in the end: what it takes that
/// for may be closer to the truth. Throws what the smallest plan needs.
template <typename Plans>
auto shrinking(CompileOptions &options, const Plans &plans,
               std::optional<double> rival = std::nullopt,
               Asked often = Asked::Again) -> decltype(plans(options)) {
  std::optional<OverLimit> least;
  const bool chooses = options.recompute == "auto";
  const CompileOptions asked = options;
  if (auto made = stepping(options, plans, rival, least, often))
    return *made;
  if (!rival && std::string_view(options.strategy) == kLeast[0]) {
    options = asked;
    if (auto made = stepping(options, plans, rival, least, often, quarterAfter))
      return *made;
  }
  if (chooses && !least->recomputesAll && !(rival && least->seconds >= *rival))
    try {
      options.recompute = "full";
      options.memoryMargin = 0;
      if (auto made = stepping(options, plans, rival, least, often))
        return *made;
    } catch (const Failure &failure) {
      if (failure.code != Exit::NoFit && failure.code != Exit::Usage)
        throw;
    }
  throw tooLarge(*least);
}

/// The options of the fastest plan that fits under one of the strategies, and
/// the plan; with `first` that of the first that has one. Without any, `least`
/// is the refusal of the smallest, if that is smaller than what it was. The
/// options' own strategy goes on behind `over`, the plan that it has made.
/// `best` is what is there before.
std::optional<Found>
fitting(const CompileOptions &options, const Trial &trial, Names strategies,
        bool first, std::optional<plan::NoFit> &least,
        const std::optional<OverLimit> &over = std::nullopt,
        Asked often = Asked::Again, std::optional<Found> best = {}) {
  for (const char *strategy : strategies) {
    const bool goesOn = over && strategy == options.strategy;
    try {
      CompileOptions asked = options;
      asked.strategy = strategy;
      asked.ofAuto = options.strategy == "auto";
      if (goesOn) {
        if (best && over->seconds >= best->second.seconds)
          continue;
        asked.memoryMargin = over->limit - givenAfter(*over, over->limit);
      }
      const Prospect found = shrinking(
          asked, trial,
          best ? std::optional(best->second.seconds) : std::nullopt, often);
      if (!best || found.seconds < best->second.seconds)
        best.emplace(asked, found);
      if (first)
        break;
    } catch (const plan::NoFit &failure) {
      // The planner's word is on less than there is: the plan's is the need.
      const bool isShrunk = goesOn && failure.limit < over->limit;
      const plan::NoFit need = isShrunk ? tooLarge(*over) : failure;
      if (!least || needOf(need) < needOf(*least))
        least.emplace(need);
    } catch (const Failure &failure) { // stages that it cannot have
      if (failure.code != Exit::NoFit && failure.code != Exit::Usage)
        throw;
    }
  }
  return best;
}

/// Whether a plan fits under the options, by the planner's first word. Of
/// `auto` of what keeps least: where that fits `auto` finds a plan in the end.
bool fits(const CompileOptions &options, const Trial &trial) {
  std::optional<plan::NoFit> refusal;
  const char *const own[] = {options.strategy.c_str()};
  const bool isAuto = options.strategy == "auto";
  CompileOptions asked = options;
  asked.quick = isAuto; // as in automatically()
  try {
    return fitting(asked, trial, isAuto ? Names(kLeast) : Names(own), true,
                   refusal, std::nullopt, Asked::Once)
        .has_value();
  } catch (const Failure &failure) { // a profile of larger microbatches, say
    if (failure.code == Exit::Internal)
      throw;
    return false;
  }
}

/// The options of a plan that was found quickly; with the whole search where
/// that finds a plan as fast.
CompileOptions inEarnest(const Found &found, const Trial &trial) {
  CompileOptions asked = found.first;
  asked.quick = false;
  try {
    if (trial(asked).seconds <= found.second.seconds)
      return asked;
  } catch (const OverLimit &) {
  } catch (const Failure &failure) {
    if (failure.code != Exit::NoFit)
      throw;
  }
  return found.first;
}

/// The plan of a planner that is given more than there is, where it keeps to
/// that: what it takes a plan for may be a little too much.
std::optional<int> generously(CompileOptions options, const Attempt &attempt) {
  options.memoryMargin = -options.memoryLimit / kShareTooMuch;
  try {
    return attempt(options);
  } catch (const OverLimit &) {
  } catch (const plan::NoFit &) {
  }
  return std::nullopt;
}

/// A plan that fits, or why the planner's is none.
struct Own {
  std::optional<Found> made;
  std::optional<OverLimit> isOver;
  std::optional<plan::NoFit> refusal;
};

/// Whether a quick look comes to a plan that is too large.
bool isSeenTooLarge(CompileOptions options, const Trial &trial) {
  options.quick = true;
  try {
    trial(options);
  } catch (const OverLimit &) {
    return true;
  } catch (const plan::NoFit &) {
  }
  return false;
}

/// What a strategy comes to with a little more than there is, and with that.
void findOwnPlan(const CompileOptions &options, const Trial &trial, Own &own) {
  for (const int64_t more : {options.memoryLimit / kShareTooMuch, int64_t(0)}) {
    CompileOptions asked = options;
    asked.memoryMargin = -more;
    if (more > 0 && isSeenTooLarge(asked, trial))
      continue;
    try {
      const Prospect found = trial(asked);
      own.isOver.reset(), own.refusal.reset();
      own.made.emplace(asked, found);
      return;
    } catch (const OverLimit &over) {
      own.isOver = over, own.refusal.reset();
    } catch (const plan::NoFit &failure) {
      own.isOver.reset(), own.refusal.emplace(failure);
    }
  }
}

/// Seconds of a step where memory is no matter, by the planner's first word; 0
/// where there is none.
double freeSeconds(const CompileOptions &options, const Trial &trial) {
  constexpr int64_t kAny = int64_t(1) << 60; // bytes
  CompileOptions asked = options;
  asked.quick = true;
  asked.memoryMargin = options.memoryLimit - kAny;
  try {
    return trial(asked).seconds;
  } catch (const OverLimit &over) {
    return over.seconds;
  } catch (const Failure &failure) { // the plan that there is stays one
    if (failure.code != Exit::NoFit && failure.code != Exit::Usage)
      throw;
    return 0;
  }
}

/// Whether the limit costs time.
bool isSlowed(const Found &made, const CompileOptions &options,
              const Trial &trial) {
  constexpr double kAsFast = 1.01;
  return made.second.seconds > kAsFast * freeSeconds(options, trial);
}

/// `best`, or the smallest plan of 1f1b where that is faster: it fits under
/// each limit above its need, to which the ways from these limits need not
/// lead. Looked for only where memory costs much.
Found orSmallest(const Found &best, const CompileOptions &options,
                 const Trial &trial) {
  constexpr double kMuchSlower = 1.25;
  if (best.second.seconds <= kMuchSlower * freeSeconds(options, trial))
    return best;
  CompileOptions asked = options;
  asked.strategy = kFrugalStrategies[0];
  asked.ofAuto = true;
  const std::optional<Smallest> found =
      smallestPlan(asked, trial, best.second.seconds);
  if (!found || found->bytes < 0 || found->bytes > options.memoryLimit)
    return best;
  asked = found->under(asked, options.memoryLimit);
  try {
    const Prospect made = trial(asked);
    return made.seconds < best.second.seconds ? Found(asked, made) : best;
  } catch (const OverLimit &) {
  } catch (const plan::NoFit &) {
  }
  return best;
}

/// `best`, or a faster plan that is made of a little less than there is:
/// orders that are searched for under one limit may be slower than those of a
/// smaller one. The sizes are parts of powers of two, the same for all limits
/// between two of them, so that more memory hardly ever costs time.
Found orOfLess(Found best, const CompileOptions &options, const Trial &trial) {
  constexpr int kSizes = 3;
  int64_t step = 1; // an eighth to a sixteenth of the limit
  while (16 * step <= options.memoryLimit)
    step *= 2;
  CompileOptions asked = options;
  asked.quick = true;
  const int64_t most = options.memoryLimit / step;
  for (int64_t size = most; size > most - kSizes && size > 0; --size)
    try {
      asked.memoryMargin = options.memoryLimit - size * step;
      const Prospect made = trial(asked);
      if (made.seconds < best.second.seconds)
        best = {asked, made};
    } catch (const OverLimit &) {
    } catch (const Failure &failure) {
      if (failure.code != Exit::NoFit)
        throw;
      break;
    }
  return best;
}

/// The fastest plan that fits of what one strategy makes of a little more than
/// there is, and of less and less.
Found fastestOf(CompileOptions options, const Trial &trial,
                std::optional<double> rival = std::nullopt) {
  Own own;
  findOwnPlan(options, trial, own);
  if (own.made && own.made->second.bytes < 0)
    return {options, own.made->second};
  if (own.made)
    return climbed(*own.made, trial);
  const Prospect made = shrinking(options, trial, rival);
  return made.bytes < 0 ? Found(options, made)
                        : climbed({options, made}, trial);
}

/// `best`, or what one of the searched orders comes to in earnest, where there
/// is enough to be won for what that takes.
Found orSearched(Found best, const CompileOptions &options,
                 const Trial &trial) {
  constexpr double kWorthIt = 1.03;
  if (best.second.seconds <= kWorthIt * freeSeconds(options, trial))
    return best;
  for (const char *strategy : kSearched)
    try {
      CompileOptions asked = options;
      asked.strategy = strategy;
      asked.ofAuto = true;
      const Found found = fastestOf(asked, trial, best.second.seconds);
      if (found.second.seconds < best.second.seconds)
        best = found;
    } catch (const Failure &failure) { // stages that it cannot have
      if (failure.code != Exit::NoFit && failure.code != Exit::Usage)
        throw;
    }
  return best;
}

/// Where the limit costs time: what the planner takes for too much may be
/// faster than `made`, and fit.
CompileOptions fasterThan(const Found &made, const CompileOptions &options,
                          const Trial &trial) {
  if (!isSlowed(made, options, trial))
    return made.first;
  CompileOptions quickly = made.first;
  quickly.quick = true;
  std::optional<plan::NoFit> least;
  const Found own =
      orOfLess(climbed({quickly, made.second}, trial), options, trial);
  const bool isBetter = own.second.seconds < made.second.seconds;
  quickly.memoryMargin = options.memoryMargin;
  const auto fit =
      fitting(quickly, trial, Names(kRivals).first(std::size(kRivals) - 1),
              false, least, std::nullopt, Asked::Again, isBetter ? own : made);
  const Found best =
      orSmallest(orSearched(*fit, options, trial), quickly, trial);
  if (best.first == made.first)
    return made.first;
  return inEarnest(climbed(best, trial), trial);
}

/// The plan of `auto`, or else the fastest that fits; of a model too large to
/// be tried the first.
int automatically(const CompileOptions &options, const Attempt &attempt,
                  const Trial &trial) {
  Own own;
  if (options.memoryLimit > 0)
    try {
      findOwnPlan(options, trial, own);
    } catch (const Failure &) {
      CompileOptions asked = options;
      return shrinking(asked, attempt); // says why
    }
  const bool isLarge = own.made && own.made->second.bytes < 0;
  if (own.made && !isLarge) {
    CompileOptions asked = fasterThan(*own.made, options, trial);
    return shrinking(asked, attempt);
  }
  if (const auto made = isLarge ? generously(options, attempt) : std::nullopt)
    return *made;
  std::optional<plan::NoFit> least = own.refusal;
  std::optional<OverLimit> isOver = own.isOver;
  if (!least && !isOver)
    try {
      return attempt(options);
    } catch (const OverLimit &over) {
      isOver = over;
    } catch (const plan::NoFit &failure) {
      least.emplace(failure);
    }
  CompileOptions quickly = options;
  quickly.quick = true;
  const auto best = fitting(quickly, trial,
                            isOver ? Names(kRivals) : Names(kFrugalStrategies),
                            false, least, isOver);
  if (best && best->second.bytes >= 0) {
    CompileOptions asked =
        options.memoryLimit > 0
            ? inEarnest(climbed(orSmallest(orSearched(*best, options, trial),
                                           quickly, trial),
                                trial),
                        trial)
            : inEarnest(*best, trial);
    return shrinking(asked, attempt);
  }
  int code = 0;
  const Trial made = [&](const CompileOptions &asked) {
    code = attempt(asked);
    return Prospect{-1, 0};
  };
  if (best && ((isOver && fitting(options, made, kAll, true, least, isOver)) ||
               fitting(options, made, kFrugalStrategies, true, least)))
    return code;
  if (own.refusal || own.isOver)
    try {
      return attempt(options); // which also says what there is to remark
    } catch (const OverLimit &) {
    } catch (const plan::NoFit &) {
    }
  if (least)
    throw *least;
  CompileOptions asked = options; // says why
  return shrinking(asked, attempt);
}

/// `best`, or a faster plan that computes nothing again: the planner may take
/// that for too much where the plan is not.
Found orKept(const Found &best, const CompileOptions &options,
             const Trial &trial) {
  if (options.recompute != "auto" || !best.second.recompute ||
      best.second.bytes < 0)
    return best;
  CompileOptions asked = options;
  asked.recompute = "selective";
  try {
    const Found kept = fastestOf(asked, trial, best.second.seconds);
    return kept.second.seconds < best.second.seconds ? kept : best;
  } catch (const Failure &failure) {
    if (failure.code != Exit::NoFit)
      throw;
    return best;
  }
}

/// The plan of one strategy, the fastest that fits where there is a limit.
int byName(const CompileOptions &options, const Attempt &attempt,
           const Trial &trial) {
  CompileOptions asked = options;
  if (options.memoryLimit > 0)
    try {
      Found best = orKept(fastestOf(options, trial), options, trial);
      if (best.second.bytes >= 0 && isSlowed(best, options, trial))
        best = orOfLess(std::move(best), options, trial);
      asked = best.first;
    } catch (const Failure &) { // which the attempt says as well
    }
  return shrinking(asked, attempt);
}

/// Why nothing fits, and the smallest plan that there is.
struct Refused {
  plan::NoFit failure;
  std::optional<Smallest> smallest;
};

int fitted(const CompileOptions &options, const Attempt &attempt,
           const Trial &trial) {
  try {
    if (options.strategy == "auto")
      return automatically(options, attempt, trial);
    return byName(options, attempt, trial);
  } catch (const plan::NoFit &failure) {
    const std::optional<Smallest> smallest = smallestPlan(options, trial);
    // Found on no way that the limit leads to.
    if (smallest && smallest->enough() <= failure.limit) {
      CompileOptions asked = smallest->under(options, failure.limit);
      try {
        return shrinking(asked, attempt);
      } catch (const plan::NoFit &) { // of a large model it was the planner's
        if (smallest->bytes >= 0)     // word
          throw;
      }
    }
    throw Refused{failure, smallest};
  }
}

} // namespace

int withinLimit(const CompileOptions &options, const Attempt &attempt,
                const Trial &each, const std::string &batch) {
  const Trial trial = RememberedTrial(each);
  try {
    return fitted(options, attempt, trial);
  } catch (const Refused &refused) {
    const auto isEnough = [&](const CompileOptions &changed) {
      return fits(changed, trial);
    };
    throw advised(options, refused.failure, refused.smallest, isEnough, batch);
  }
}

int withinLimitUnadvised(const CompileOptions &options, const Attempt &attempt,
                         const Trial &each) {
  try {
    return fitted(options, attempt, RememberedTrial(each));
  } catch (const Refused &refused) {
    if (!refused.smallest)
      throw refused.failure;
    throw Failure(Exit::NoFit, "the smallest plan found needs " +
                                   report::bytes(refused.smallest->enough()) +
                                   " on a device");
  }
}

} // namespace pipec
