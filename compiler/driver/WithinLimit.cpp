//===- WithinLimit.cpp - plans that keep to the memory there is -----------===//
#include "compiler/driver/WithinLimit.h"

#include "compiler/plan/Infeasible.h"
#include "report/Format.h"

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pipec {
namespace {

/// Tries before a plan is said not to fit: down to a quarter of the limit.
constexpr int kMostTries = 8;
/// Limits that are tried before one is named.
constexpr int kMostTrials = 6;

/// The next of 4/4, 5/4, 6/4, 7/4 of a power of two.
int64_t nextLower(int64_t bytes) {
  int64_t power = 1;
  while (2 * power < bytes)
    power *= 2;
  const int64_t step = std::max<int64_t>(1, power / 4);
  return std::max<int64_t>(1, (bytes - 1) / step * step);
}

std::string shortageOf(int64_t bytes, const std::string &where, int64_t limit) {
  return "nothing fits in memory: the smallest plan found needs " +
         report::bytes(bytes) + " on " + where + ", " +
         report::bytes(bytes - limit) + " more than the " +
         report::bytes(limit) + " there are";
}

plan::NoFit tooLarge(const OverLimit &over) {
  return plan::NoFit(
      shortageOf(over.bytes, "rank " + std::to_string(over.rank), over.limit),
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
/// What takes part in `auto` and keeps little.
constexpr const char *kFrugal[] = {"1f1b", "v-half", "v-min", "naive"};
/// What takes part and may be the fastest that fits, and all that does.
constexpr const char *kRivals[] = {"v-half", "1f1b",  "gpipe", "zb-h1",
                                   "dp",     "v-min", "naive", "auto"};
constexpr const char *kAll[] = {"auto"};

/// The options with a remedy; nothing where it is more than an option.
std::optional<CompileOptions> with(const plan::Remedy &remedy,
                                   CompileOptions options) {
  switch (remedy.kind) {
  case plan::Remedy::Limit:
    options.memoryLimit = remedy.amount;
    return options;
  case plan::Remedy::Recompute:
    options.recompute = "auto";
    return options;
  case plan::Remedy::Strategy:
    options.strategy = "1f1b";
    return options;
  case plan::Remedy::Devices:
    if (!options.clusterFile.empty())
      return std::nullopt;
    (options.gpus.empty() ? options.cpus : options.gpus) =
        std::to_string(remedy.amount);
    return options;
  }
  return std::nullopt;
}

/// The limit that a refusal names, or the most where it names none.
int64_t needOf(const plan::NoFit &failure) {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  for (const plan::Remedy &remedy : failure.remedies)
    if (remedy.kind == plan::Remedy::Limit)
      bytes = remedy.amount;
  return bytes;
}

/// What the planner is given after a plan that is over the limit: less than it
/// was, and than it took the plan for, or that would come again. Quarters of
/// powers of two, the same ones whatever the limit, so that a plan found under
/// one is found under another.
int64_t givenAfter(const OverLimit &over, int64_t given) {
  return nextLower(over.planned > 0 ? std::min(over.planned, given) : given);
}

/// With less and less for the planner, from what the options leave it on; what
/// fits stays in the options. Ends early at a plan as slow as a `rival` that
/// fits: less memory does not make it faster.
template <typename Plans>
auto shrinking(CompileOptions &options, const Plans &plans,
               std::optional<double> rival = std::nullopt)
    -> decltype(plans(options)) {
  std::optional<OverLimit> least;
  for (int64_t tries = 1, given = 0;; ++tries) {
    try {
      return plans(options);
    } catch (const OverLimit &over) {
      if (!least || over.bytes < least->bytes)
        least = over;
      if (rival && over.seconds >= *rival)
        throw tooLarge(*least);
      given = givenAfter(over,
                         given > 0 ? given : over.limit - options.memoryMargin);
    } catch (const Failure &failure) {
      if (!least || failure.code != Exit::NoFit)
        throw;
      throw tooLarge(*least);
    }
    if (tries == kMostTries)
      throw tooLarge(*least);
    options.memoryMargin = least->limit - given;
    options.quick = true;
  }
}

/// The options of the fastest plan that fits under one of the strategies, and
/// the plan; with `first` that of the first that has one. Without any, `least`
/// is the refusal of the smallest, if that is smaller than what it was. The
/// options' own strategy goes on behind `over`, the plan that it has made.
std::optional<std::pair<CompileOptions, Prospect>>
fitting(const CompileOptions &options, const Trial &trial, Names strategies,
        bool first, std::optional<plan::NoFit> &least,
        const std::optional<OverLimit> &over = std::nullopt) {
  std::optional<std::pair<CompileOptions, Prospect>> best;
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
      const Prospect found =
          shrinking(asked, trial,
                    best ? std::optional(best->second.seconds) : std::nullopt);
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

/// Bytes of the plan that fits under the options; else nothing, and in `least`
/// the bytes of the smallest plan there was, 0 without one. Of `auto` of what
/// keeps little: where that fits `auto` finds a plan in the end.
std::optional<int64_t> tried(const CompileOptions &options, const Trial &trial,
                             int64_t &least) {
  std::optional<plan::NoFit> refusal;
  const char *const own[] = {options.strategy.c_str()};
  const bool isAuto = options.strategy == "auto";
  CompileOptions asked = options;
  asked.quick = isAuto; // as in automatically()
  const auto found =
      fitting(asked, trial, isAuto ? Names(kFrugal) : own, true, refusal);
  if (found)
    return found->second.bytes;
  least = refusal ? needOf(*refusal) : 0;
  if (least == std::numeric_limits<int64_t>::max())
    least = 0;
  return std::nullopt;
}

/// A limit under which there is a plan, from `bytes` on; 0 when none is found,
/// -1 when the model is too large to look for one.
int64_t limitThatFits(const CompileOptions &options, int64_t bytes,
                      const Trial &trial) {
  int64_t found = 0;
  for (int trials = 0; trials < kMostTrials && bytes > 0; ++trials) {
    int64_t least = 0;
    const auto peak =
        tried(*with({plan::Remedy::Limit, bytes}, options), trial, least);
    if (peak && *peak < 0)
      return -1;
    if (!peak && found)
      break;
    if (peak) {
      found = bytes;
      if (*peak >= bytes)
        break;
      bytes = *peak; // which may do by itself
    } else {
      bytes = std::max(least, bytes + bytes / 64 + 1);
    }
  }
  return found;
}

/// `failure` with what has been tried in place of what the planner believes:
/// the bytes that are missing are those up to the limit that it names.
plan::NoFit advised(const CompileOptions &options, const plan::NoFit &failure,
                    const Trial &trial) {
  std::vector<plan::Remedy> remedies;
  std::string shortage = failure.shortage;
  for (plan::Remedy remedy : failure.remedies) {
    if (remedy.kind == plan::Remedy::Limit) {
      const int64_t bytes = limitThatFits(options, remedy.amount, trial);
      if (bytes < 0)
        return failure;
      remedy.amount = bytes;
      if (bytes == 0)
        continue;
      if (failure.limit > 0)
        shortage = "nothing fits in memory: the smallest plan found needs " +
                   report::bytes(bytes) + " on a device, " +
                   report::bytes(bytes - failure.limit) + " more than the " +
                   report::bytes(failure.limit) + " there are";
    } else {
      const auto changed = with(remedy, options);
      int64_t least = 0;
      if (!changed || !tried(*changed, trial, least))
        continue;
    }
    remedies.push_back(remedy);
  }
  return plan::NoFit(shortage, remedies, failure.hint, failure.limit);
}

/// The options of a plan that was found quickly; with the whole search where
/// that finds a plan as fast.
CompileOptions inEarnest(const std::pair<CompileOptions, Prospect> &found,
                         const Trial &trial) {
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

/// The plan of `auto`, or else the fastest that fits; of a model too large to
/// be tried the first.
int automatically(const CompileOptions &options, const Attempt &attempt,
                  const Trial &trial) {
  std::optional<plan::NoFit> least;
  std::optional<OverLimit> isOver;
  try {
    return attempt(options);
  } catch (const OverLimit &over) {
    isOver = over;
  } catch (const plan::NoFit &failure) {
    least.emplace(failure);
  }
  CompileOptions quickly = options;
  quickly.quick = true;
  const auto best =
      fitting(quickly, trial, isOver ? Names(kRivals) : Names(kFrugal), false,
              least, isOver);
  if (best && best->second.bytes >= 0) {
    CompileOptions asked = inEarnest(*best, trial);
    return shrinking(asked, attempt);
  }
  int code = 0;
  const Trial made = [&](const CompileOptions &asked) {
    code = attempt(asked);
    return Prospect{-1, 0};
  };
  if (best && ((isOver && fitting(options, made, kAll, true, least, isOver)) ||
               fitting(options, made, kFrugal, true, least)))
    return code;
  if (least)
    throw *least;
  CompileOptions asked = options; // says why
  return shrinking(asked, attempt);
}

} // namespace

int withinLimit(const CompileOptions &options, const Attempt &attempt,
                const Trial &trial) {
  try {
    if (options.strategy == "auto")
      return automatically(options, attempt, trial);
    CompileOptions asked = options;
    return shrinking(asked, attempt);
  } catch (const plan::NoFit &failure) {
    throw advised(options, failure, trial);
  }
}

} // namespace pipec
