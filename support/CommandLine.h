//===- CommandLine.h - one way to read a command line -----------*- C++ -*-===//
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace pipec {

/// Parses the arguments of `command` ("pipec inspect"), with --version and
/// --help; nothing when it is to go on, else the exit code it ends with.
/// Failure(Exit::Usage) that names the command's --help.
std::optional<int> parseCommandLine(CLI::App &app, const std::string &command,
                                    int argc, char **argv);

} // namespace pipec
