//===- FasterRows.cpp - baselines that are faster than the plan -----------===//
#include "compiler/driver/FasterRows.h"

#include "support/UnknownName.h"

#include <vector>

namespace pipec {

/// The options that leave the planner less to choose.
static std::vector<std::string> narrowing(const CompileOptions &o) {
  std::vector<std::string> flags;
  const auto add = [&](const std::string &flag, const std::string &value,
                       const std::string &free) {
    if (value != free)
      flags.push_back(flag + " " + value);
  };
  if (!o.forwardOnly && !o.ofAuto)
    add("--strategy", o.strategy, "auto");
  add("--stages", o.stages, "auto");
  add("--replicas", o.replicas, "");
  if (!o.stageFile.empty())
    flags.emplace_back("--stage-file");
  add("--planner", o.planner, "auto");
  if (o.tensorParallel != "auto")
    add("--tensor-parallel", o.tensorParallel, "1");
  if (o.slices > 0)
    flags.push_back("--slices " + std::to_string(o.slices));
  return flags;
}

std::string whyNotChosen(const CompileOptions &options,
                         const plan::Baseline &baseline,
                         const plan::PlanResult &own) {
  constexpr double kSame = 0.995; // what is printed as 1.00x
  if (!baseline.fits || !(baseline.stepSeconds > 0))
    return "";
  const std::string estimated = "if it keeps to its estimated memory";
  if (baseline.stepSeconds >= kSame * own.stepSeconds)
    return options.memoryLimit > 0 && own.limitBinds ? estimated : "";
  const std::vector<std::string> flags = narrowing(options);
  const std::string memory = "faster, " + estimated;
  if (flags.empty())
    return memory;
  return (options.memoryLimit > 0 ? memory + "; " : "faster: ") +
         listed(flags) + (flags.size() == 1 ? " asks" : " ask") +
         " for another plan";
}

} // namespace pipec
