//===- CommandLine.h - one way to read a command line -----------*- C++ -*-===//
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace pipec {

/// What this process was asked, for what it says of errors.
struct Invocation {
  std::string input; ///< the first word that is no option; may be empty
  bool json = false; ///< --format json
};

/// Of the command line that was parsed last, also of one that could not be.
const Invocation &invocation();

/// Parses the arguments of `command` ("pipec inspect"), with --version and
/// --help; nothing when it is to go on, else the exit code it ends with.
/// Failure(Exit::Usage) that names the command's --help.
std::optional<int> parseCommandLine(CLI::App &app, const std::string &command,
                                    int argc, char **argv);

} // namespace pipec
