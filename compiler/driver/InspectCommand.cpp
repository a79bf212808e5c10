//===- InspectCommand.cpp - `pipec inspect` ------------------------------===//
#include "compiler/driver/InspectCommand.h"

#include "compiler/driver/Terminal.h"
#include "report/Report.h"
#include "support/Failure.h"
#include "support/Version.h"

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
      ->check(CLI::IsMember({"text", "json"}));
  app.add_flag("--quiet", quiet, "only check the plan");
  app.set_version_flag("--version", std::string("pipec ") + kVersion);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &e) {
    return app.exit(e, std::cout, std::cerr);
  } catch (const CLI::ParseError &e) {
    throw Failure(Exit::Usage,
                  std::string(e.what()) + "; see pipec inspect --help");
  }
  const plan::Plan plan = plan::readPlan(directory);
  if (!quiet)
    std::cout << (format == "json"
                      ? report::inspectJson(plan)
                      : report::inspectText(plan, terminalOptions()));
  return 0;
}

} // namespace pipec
