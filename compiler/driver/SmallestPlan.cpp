//===- SmallestPlan.cpp - the plan that takes the least memory ------------===//
#include "compiler/driver/SmallestPlan.h"

#include <iterator>
#include <limits>
#include <string>
#include <vector>

namespace pipec {

int64_t needOf(const plan::NoFit &failure) {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  for (const plan::Remedy &remedy : failure.remedies)
    if (remedy.kind == plan::Remedy::Limit)
      bytes = remedy.amount;
  return bytes;
}

int64_t Smallest::enough() const {
  return bytes < 0 ? options.memoryLimit : bytes;
}

CompileOptions Smallest::under(const CompileOptions &asked,
                               int64_t limit) const {
  CompileOptions same = options;
  same.memoryLimit = asked.memoryLimit;
  same.memoryMargin = limit - options.memoryLimit;
  return same;
}

namespace {

/// Sixtyfourths above what the planner calls the least that are given as well:
/// its estimate orders plans of about the same size wrongly.
constexpr int kAbove[] = {16, 4, 1, 0};
/// Plans below what it calls the least that are looked for, one after the
/// other: it has not looked at all shapes.
constexpr int kMostBelow = 4;
/// Limits that are tried where it names more than what it was given.
constexpr int kMostAbove = 3;

/// What the planner makes of a limit.
struct Answer {
  int64_t bytes = 0;   ///< of a plan; 0: there is none
  int64_t planned = 0; ///< what it took the plan for, 0: not known
  int64_t need = 0;    ///< what it asks for in place of the limit, 0: nothing
  double seconds = 0;  ///< of a plan's step
};

class Search {
public:
  Search(const Trial &trial, double faster) : trial(trial), faster(faster) {}

  /// All limits that follow from the options but for their own.
  void look(CompileOptions options) {
    if (isTooLarge()) // which takes long enough
      return;
    options.memoryMargin = 0;
    options.quick = true;
    const int64_t least = ask(options, 1).need;
    if (least == 0 || isHopeless(least))
      return;
    for (int share : kAbove) {
      const int64_t given = least + least / 64 * share;
      const Answer answer = ask(options, given);
      if (answer.need > given) { // which leaves nothing in between
        lookAbove(options, answer.need);
        return;
      }
      if (isTooLarge()) {
        ask(options, least);
        return;
      }
      if (answer.seconds >= faster)
        return;
    }
    lookBelow(options, least);
  }

  std::optional<Smallest> best;

private:
  /// An order that is searched for under a larger limit may need more again.
  void lookAbove(const CompileOptions &options, int64_t need) {
    for (int tries = 0; tries < kMostAbove && need > 0 && !isHopeless(need);
         ++tries)
      need = ask(options, need + need / 32).need;
  }

  void lookBelow(const CompileOptions &options, int64_t least) {
    int64_t given = least - 1;
    for (int tries = 0; tries < kMostBelow && given > 0; ++tries) {
      const Answer answer = ask(options, given);
      const int64_t next = answer.need ? answer.need : answer.planned - 1;
      if (next >= given || next <= 0 || answer.seconds >= faster)
        return;
      given = next;
    }
  }

  /// The model, to be tried: the planner's word is all that there is.
  bool isTooLarge() const { return best && best->bytes < 0; }

  /// The planner takes a plan for a third too much at most.
  bool isHopeless(int64_t least) const {
    return best && best->bytes >= 0 && least / 4 * 3 > best->bytes;
  }

  Answer ask(CompileOptions options, int64_t given) {
    options.memoryLimit = given;
    try {
      const Prospect made = trial(options);
      see(options, made.bytes);
      return {made.bytes, made.planned, 0, made.seconds};
    } catch (const OverLimit &over) {
      see(options, over.bytes);
      return {over.bytes, over.planned, 0, over.seconds};
    } catch (const plan::NoFit &failure) {
      const int64_t need = needOf(failure);
      return {0, 0, need < std::numeric_limits<int64_t>::max() ? need : 0};
    } catch (const Failure &failure) { // stages that it cannot have
      if (failure.code != Exit::NoFit && failure.code != Exit::Usage)
        throw;
      return {};
    }
  }

  void see(const CompileOptions &options, int64_t bytes) {
    const bool isLess = bytes < 0 && isTooLarge()
                            ? options.memoryLimit < best->options.memoryLimit
                            : !best || bytes < best->bytes;
    if (isLess)
      best = Smallest{options, bytes};
  }

  const Trial &trial;
  const double faster;
};

} // namespace

std::optional<Smallest> smallestPlan(const CompileOptions &options,
                                     const Trial &trial, double faster) {
  Search search(trial, faster);
  const bool isAuto = options.strategy == "auto";
  std::vector<std::string> strategies = {options.strategy};
  if (isAuto) // the last one keeps least
    strategies.assign(std::rbegin(kFrugalStrategies),
                      std::rend(kFrugalStrategies));
  // Where the planner chooses, all computed again is mostly the least.
  std::vector<std::string> recomputations = {options.recompute};
  if (options.recompute == "auto")
    recomputations.insert(recomputations.begin(), "full");
  for (const std::string &strategy : strategies)
    for (const std::string &recompute : recomputations)
      for (const bool without : {false, true}) {
        CompileOptions asked = options;
        asked.strategy = strategy;
        asked.ofAuto = isAuto;
        asked.recompute = recompute;
        asked.withoutWorkspace = without;
        search.look(asked);
      }
  return search.best;
}

} // namespace pipec
