//===- InspectCommand.cpp - `pipec inspect` ------------------------------===//
#include "compiler/driver/InspectCommand.h"

#include "compiler/driver/Terminal.h"
#include "report/Report.h"
#include "runtime/program/StageFiles.h"
#include "support/CommandLine.h"
#include "support/Failure.h"
#include "support/OptionChecks.h"

#include <CLI/CLI.hpp>

#include <iostream>

namespace pipec {

int inspectCommand(int argc, char **argv) {
  CLI::App app("Prints a plan as tables: stages, memory, schedule, tensors.",
               "pipec inspect");
  std::string directory, format = "text";
  bool quiet = false;
  app.add_option("plan", directory, "the plan directory")->required();
  app.add_option("--format", format, "text or json")
      ->check(oneOf({"text", "json"}));
  app.add_flag("--quiet", quiet, "only check the plan and its stage programs");
  if (const auto done = parseCommandLine(app, "pipec inspect", argc, argv))
    return *done;
  const plan::Plan plan = plan::readPlan(directory);
  plan::checkStageFiles(directory, plan);
  if (!quiet)
    std::cout << (format == "json"
                      ? report::inspectJson(plan)
                      : report::inspectText(plan, terminalOptions()));
  return 0;
}

} // namespace pipec
