//===- ShrinkToLimit.cpp - less and less for the planner ------------------===//
#include "compiler/driver/ShrinkToLimit.h"

#include "compiler/driver/Remedies.h"

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>

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

/// givenAfter() in small steps, whatever was lacking: quarters of powers of
/// two, the same ones whatever the limit.
int64_t quarterAfter(const OverLimit &over, int64_t given) {
  return nextLower(over.planned > 0 ? std::min(over.planned, given) : given);
}

using Stride = int64_t (*)(const OverLimit &over, int64_t given);

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
auto shrunk(CompileOptions &options, const Plans &plans,
            std::optional<double> rival, Asked often)
    -> decltype(plans(options)) {
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

} // namespace

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

Prospect shrinking(CompileOptions &options, const Trial &trial,
                   std::optional<double> rival, Asked often) {
  return shrunk(options, trial, rival, often);
}

int shrinking(CompileOptions &options, const Attempt &attempt) {
  return shrunk(options, attempt, std::nullopt, Asked::Again);
}

} // namespace pipec
