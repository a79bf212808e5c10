//===- WithinLimit.cpp - plans that keep to the memory there is -----------===//
#include "compiler/driver/WithinLimit.h"

#include "compiler/driver/ClimbToLimit.h"
#include "compiler/driver/Remedies.h"
#include "compiler/driver/RememberedTrial.h"
#include "compiler/driver/ShrinkToLimit.h"
#include "compiler/driver/SmallestPlan.h"
#include "compiler/plan/Infeasible.h"
#include "report/Format.h"

#include <optional>
#include <span>
#include <string>
#include <utility>

namespace pipec {
namespace {

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
      if (best.second.bytes >= 0)
        asked = inEarnest(best, trial);
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
