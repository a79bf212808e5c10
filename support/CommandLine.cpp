//===- CommandLine.cpp - one way to read a command line -------------------===//
#include "support/CommandLine.h"

#include "support/Failure.h"
#include "support/Version.h"

#include <CLI/CLI.hpp>

#include <iostream>

namespace pipec {

std::optional<int> parseCommandLine(CLI::App &app, const std::string &command,
                                    int argc, char **argv) {
  app.set_version_flag("--version",
                       command.substr(0, command.find(' ')) + " " + kVersion);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &done) {
    return app.exit(done, std::cout, std::cerr);
  } catch (const CLI::ParseError &error) {
    throw Failure(Exit::Usage,
                  std::string(error.what()) + "; see " + command + " --help");
  }
  return std::nullopt;
}

} // namespace pipec
