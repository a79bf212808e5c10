//===- CompileMemory.cpp - what attempts at a plan share ------------------===//
#include "compiler/driver/CompileMemory.h"

#include "compiler/strategy/Strategy.h"

#include <algorithm>

namespace pipec {

const Decision &KnownDecision::get() const {
  if (refusal)
    std::rethrow_exception(refusal);
  return *found;
}

CompileOptions KnownDecision::deciding(CompileOptions options) {
  options.quiet = false;
  options.dumpDirectory.clear();
  return options;
}

bool KnownModel::recomputes(const CompileOptions &options) {
  const strategy::StrategyRow *row = strategy::findStrategy(options.strategy);
  return (options.recompute != "none" && options.recompute != "selective") ||
         (row && row->recompute);
}

CompileOptions KnownModel::deciding(CompileOptions options) {
  options = KnownDecision::deciding(options);
  const bool isCut = !options.forwardOnly && slicesAsked(options) > 1;
  options.recompute = std::string(options.recompute == "none" ? "none" : "") +
                      (recomputes(options) ? " again" : "");
  options.strategy = isCut ? "cut" : "";
  options.slices = 0;
  options.stages = options.replicas = options.stageFile = options.planner =
      options.whatIf = "";
  options.memoryLimit = options.memoryMargin = 0;
  options.ofAuto = options.quick = options.withoutWorkspace = false;
  return options;
}

const KnownDecision *CompileMemory::find(const CompileOptions &deciding) const {
  const auto it =
      std::ranges::find(decisions, deciding, &KnownDecision::options);
  return it == decisions.end() ? nullptr : &*it;
}

bool CompileMemory::isNew(const std::string &note) {
  if (std::find(notes.begin(), notes.end(), note) != notes.end())
    return false;
  notes.push_back(note);
  return true;
}

} // namespace pipec
