//===- WithinLimit.cpp - plans that keep to the memory there is -----------===//
#include "compiler/driver/WithinLimit.h"

#include "compiler/plan/Infeasible.h"
#include "report/Format.h"

#include <exception>
#include <limits>
#include <memory>
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
constexpr const char *kRivals[] = {"1f1b", "v-half", "gpipe", "zb-h1", "zb-h2",
                                   "dp",   "v-min",  "naive", "auto"};
constexpr const char *kAll[] = {"auto"};
/// What keeps least of all, for what else may fit.
constexpr const char *kLeast[] = {"naive"};

CompileOptions withLimit(CompileOptions options, int64_t bytes) {
  options.memoryLimit = bytes;
  return options;
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

/// A trial whose outcomes are remembered: the ways to one limit cross.
class Remembered {
public:
  explicit Remembered(Trial trial) : trial(std::move(trial)) {}

  Prospect operator()(const CompileOptions &options) {
    for (const auto &[asked, outcome] : *known)
      if (asked == options)
        return outcome.result();
    return known->emplace_back(options, outcomeOf(options)).second.result();
  }

private:
  struct Outcome {
    Prospect prospect{};
    std::exception_ptr thrown;
    Prospect result() const {
      if (thrown)
        std::rethrow_exception(thrown);
      return prospect;
    }
  };

  Outcome outcomeOf(const CompileOptions &options) {
    try {
      return {trial(options), nullptr};
    } catch (const OverLimit &) {
      return {{}, std::current_exception()};
    } catch (const Failure &) {
      return {{}, std::current_exception()};
    }
  }

  Trial trial;
  /// Copies, as std::function makes them, remember together.
  std::shared_ptr<std::vector<std::pair<CompileOptions, Outcome>>> known =
      std::make_shared<std::vector<std::pair<CompileOptions, Outcome>>>();
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
  if (chooses && !least->recompute && !(rival && least->seconds >= *rival))
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
std::optional<std::pair<CompileOptions, Prospect>>
fitting(const CompileOptions &options, const Trial &trial, Names strategies,
        bool first, std::optional<plan::NoFit> &least,
        const std::optional<OverLimit> &over = std::nullopt,
        Asked often = Asked::Again) {
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

/// Bytes of the plan that fits under the options; else nothing, and in `least`
/// the bytes of the smallest plan there was, 0 without one. Of `auto` of some
/// that keep little: where one fits `auto` finds a plan in the end.
std::optional<int64_t> tried(const CompileOptions &options, const Trial &trial,
                             int64_t &least, Names little = kFrugal,
                             Asked often = Asked::Again) {
  std::optional<plan::NoFit> refusal;
  const char *const own[] = {options.strategy.c_str()};
  const bool isAuto = options.strategy == "auto";
  CompileOptions asked = options;
  asked.quick = isAuto; // as in automatically()
  const auto found = fitting(asked, trial, isAuto ? little : Names(own), true,
                             refusal, std::nullopt, often);
  if (found)
    return found->second.bytes;
  least = refusal ? needOf(*refusal) : 0;
  if (least == std::numeric_limits<int64_t>::max())
    least = 0;
  return std::nullopt;
}

/// A smaller limit than `found` with a plan, in strides that shrink. Where the
/// first finds nothing the planner is taken at its word.
int64_t smallerThan(int64_t found, int64_t above, const CompileOptions &options,
                    const Trial &trial) {
  Asked often = Asked::Again;
  for (int64_t share = 16; share <= 256; share *= 2) {
    int64_t least = 0;
    const int64_t bytes = found - found / share;
    if (bytes <= above)
      continue;
    if (tried(withLimit(options, bytes), trial, least, kFrugal, often))
      found = bytes;
    else
      often = Asked::Once;
  }
  return found;
}

/// A limit under which there is a plan, from `bytes` on; 0 when none is found,
/// -1 when the model is too large to look for one.
int64_t limitThatFits(const CompileOptions &options, int64_t bytes,
                      const Trial &trial) {
  int64_t found = 0;
  for (int trials = 0; trials < kMostTrials && bytes > 0; ++trials) {
    int64_t least = 0;
    const auto peak = tried(withLimit(options, bytes), trial, least);
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
      // In strides that grow: a bound may be far from what can be had.
      bytes =
          std::max(least, bytes + (bytes >> std::max(0, 6 - 2 * trials)) + 1);
    }
  }
  return found;
}

/// Other options, and the flags that say so.
struct Change {
  std::string flags;
  CompileOptions options;
};

/// Fewer pieces of sequences have fewer messages under way.
std::vector<Change> fewerPieces(const CompileOptions &options) {
  std::vector<Change> changes;
  for (int part = 2; part <= 8; part *= 2)
    if (options.slices / part >= 2) {
      changes.push_back(
          {"--slices " + std::to_string(options.slices / part), options});
      changes.back().options.slices = options.slices / part;
    }
  return changes;
}

/// Half as many samples, a quarter, an eighth: the largest comes first.
std::vector<Change> smallerMicrobatches(const CompileOptions &options,
                                        const std::string &dimension) {
  std::vector<Change> changes;
  const auto size = options.dims.find(dimension);
  for (int64_t part = 2; part <= 8; part *= 2)
    if (size != options.dims.end() && size->second >= part) {
      Change change{"", options};
      const int64_t samples = change.options.dims[dimension] /= part;
      change.flags = "--dim " + dimension + "=" + std::to_string(samples);
      changes.push_back(change);
    }
  return changes;
}

/// Of a strategy that keeps more of more microbatches.
std::vector<Change> fewerMicrobatches(const CompileOptions &options) {
  std::vector<Change> changes;
  for (int part = 2; part <= 8; part *= 2)
    if (options.strategy != "auto" && options.microbatches >= part) {
      Change change{"", options};
      change.options.microbatches /= part;
      change.flags =
          "--microbatches " + std::to_string(change.options.microbatches);
      changes.push_back(change);
    }
  return changes;
}

/// What keeps activations is asked to choose.
std::vector<Change> recomputation(const CompileOptions &options) {
  if (options.recompute != "none" && options.recompute != "selective")
    return {};
  Change change{"--recompute auto", options};
  change.options.recompute = "auto";
  return {change};
}

std::vector<Change> otherStrategies(const CompileOptions &options) {
  std::vector<Change> changes;
  for (const char *strategy : kFrugal)
    if (options.strategy != "auto" && options.strategy != strategy) {
      changes.push_back({std::string("--strategy ") + strategy, options});
      changes.back().options.strategy = strategy;
    }
  return changes;
}

/// As many as the planner believes to be enough, else twice and four times as
/// many, in servers of the same size.
std::vector<Change> moreDevices(const CompileOptions &options,
                                const plan::NoFit &failure) {
  const bool isGpus = !options.gpus.empty();
  const std::string &grid = isGpus ? options.gpus : options.cpus;
  std::vector<std::string> grids;
  for (const plan::Remedy &remedy : failure.remedies)
    if (remedy.kind == plan::Remedy::Devices)
      grids.push_back(std::to_string(remedy.amount));
  const size_t by = grid.find('x');
  for (int64_t times : {2, 4}) {
    const int64_t first = std::strtoll(grid.c_str(), nullptr, 10);
    if (by == std::string::npos)
      grids.push_back(std::to_string(first * times));
    else if (first == 1)
      grids.push_back(
          "1x" + std::to_string(
                     std::strtoll(grid.c_str() + by + 1, nullptr, 10) * times));
    else
      grids.push_back(std::to_string(first * times) + grid.substr(by));
  }
  std::vector<Change> changes;
  for (const std::string &larger : grids)
    if (!grid.empty() && options.replicas.empty() &&
        options.stageFile.empty() && options.stages == "auto") {
      changes.push_back({(isGpus ? "--gpus " : "--cpus ") + larger, options});
      (isGpus ? changes.back().options.gpus : changes.back().options.cpus) =
          larger;
    }
  return changes;
}

/// `failure` with what has been tried in place of what the planner believes:
/// the bytes that are missing are those up to the limit that it names, and of
/// each kind of change the first under which there is a plan.
plan::NoFit advised(const CompileOptions &options, const plan::NoFit &failure,
                    const Trial &trial, const std::string &batch) {
  std::vector<plan::Remedy> remedies;
  std::string shortage = failure.shortage, hint = failure.hint;
  const int64_t need = needOf(failure);
  if (need < std::numeric_limits<int64_t>::max()) {
    int64_t bytes = limitThatFits(options, need, trial);
    if (bytes < 0)
      return failure;
    if (bytes > 0)
      bytes = smallerThan(bytes, failure.limit, options, trial);
    if (bytes > 0)
      remedies.push_back({plan::Remedy::Limit, bytes});
    if (bytes > 0 && failure.limit > 0)
      shortage = "nothing fits in memory: the smallest plan found needs " +
                 report::bytes(bytes) + " on a device, " +
                 report::bytes(bytes - failure.limit) + " more than the " +
                 report::bytes(failure.limit) + " there are";
  }
  for (const std::vector<Change> &kind :
       {recomputation(options), otherStrategies(options),
        fewerMicrobatches(options), smallerMicrobatches(options, batch),
        fewerPieces(options), moreDevices(options, failure)})
    for (const Change &change : kind) {
      // All computed again is the least, but where a few stages alone are.
      Change all = change;
      if (all.options.recompute == "auto")
        all.options.recompute = "full";
      int64_t least = 0;
      if (tried(all.options, trial, least, kLeast, Asked::Once) ||
          (all.options.recompute != change.options.recompute &&
           tried(change.options, trial, least, kLeast, Asked::Once))) {
        remedies.push_back({plan::Remedy::Flags, 0, change.flags});
        hint.clear(); // which only believes
        break;
      }
    }
  return plan::NoFit(shortage, remedies, hint, failure.limit);
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

/// The plan of a planner that is given more than there is, where it keeps to
/// that: what it takes a plan for may be a little too much.
std::optional<int> generously(CompileOptions options, const Attempt &attempt) {
  constexpr int64_t kShareTooMuch = 16;
  if (options.memoryLimit <= 0)
    return std::nullopt;
  options.memoryMargin = -options.memoryLimit / kShareTooMuch;
  try {
    return attempt(options);
  } catch (const OverLimit &) {
  } catch (const plan::NoFit &) {
  }
  return std::nullopt;
}

/// The plan of `auto`, or else the fastest that fits; of a model too large to
/// be tried the first.
int automatically(const CompileOptions &options, const Attempt &attempt,
                  const Trial &trial) {
  std::optional<plan::NoFit> least;
  std::optional<OverLimit> isOver;
  if (const auto made = generously(options, attempt))
    return *made;
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
                const Trial &each, const std::string &batch) {
  const Trial trial = Remembered(each);
  try {
    if (options.strategy == "auto")
      return automatically(options, attempt, trial);
    CompileOptions asked = options;
    return shrinking(asked, attempt);
  } catch (const plan::NoFit &failure) {
    throw advised(options, failure, trial, batch);
  }
}

} // namespace pipec
