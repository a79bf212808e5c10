//===- Alternatives.cpp - the same training by other strategies -----------===//
#include "compiler/driver/Alternatives.h"

#include "compiler/strategy/Strategy.h"

namespace pipec {

std::vector<plan::Alternative> alternatives(
    const CompileOptions &options, const std::string &chosen,
    const std::function<plan::Replanned(const CompileOptions &)> &plan) {
  std::vector<plan::Alternative> found;
  for (const strategy::StrategyRow &row : strategy::strategies()) {
    CompileOptions asked = options;
    asked.strategy = row.name;
    asked.slices = 0;
    if (!row.synchronous() || row.name == chosen ||
        (row.recompute && options.recompute == "none"))
      continue;
    if (slicesAsked(asked) > 1) { // pieces of sequences are for who wants them
      if (!options.slices)
        continue;
      asked.slices = options.slices;
    }
    found.push_back({row.name, [asked, plan] { return plan(asked); }});
  }
  return found;
}

} // namespace pipec
