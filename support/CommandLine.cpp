//===- CommandLine.cpp - one way to read a command line -------------------===//
#include "support/CommandLine.h"

#include "support/Failure.h"
#include "support/UnknownName.h"
#include "support/Version.h"

#include <CLI/CLI.hpp>

#include <iostream>

namespace pipec {
namespace {

/// ", did you mean --stages?" where an option's name is close to the first
/// argument that is none.
std::string suggestion(const CLI::App &app) {
  for (const std::string &argument : app.remaining()) {
    if (argument.size() < 4 || argument[0] != '-')
      continue;
    const std::string name = argument.substr(0, argument.find('='));
    std::vector<std::string> known;
    for (const CLI::Option *option : app.get_options())
      for (const std::string &one : option->get_lnames())
        known.push_back("--" + one);
    const std::string best = nearestName(name, known);
    return best.empty() ? "" : ", did you mean " + best + "?";
  }
  return "";
}

/// "--loss: At Most 1 required but received 2" and "--loss: 1 required TEXT
/// missing", in plain words.
std::string mismatch(const std::string &text) {
  const size_t colon = text.find(": ");
  const std::string what = colon == std::string::npos ? "" : text.substr(colon);
  if (what.rfind(": At Most 1 required", 0) == 0)
    return text.substr(0, colon) + " is given more than once";
  if (what.rfind(": 1 required", 0) == 0)
    return text.substr(0, colon) + " needs a value";
  return text;
}

} // namespace

std::optional<int> parseCommandLine(CLI::App &app, const std::string &command,
                                    int argc, char **argv) {
  app.set_version_flag("--version",
                       command.substr(0, command.find(' ')) + " " + kVersion);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &done) {
    return app.exit(done, std::cout, std::cerr);
  } catch (const CLI::ExtrasError &error) {
    throw Failure(Exit::Usage, error.what() + suggestion(app) + "; see " +
                                   command + " --help");
  } catch (const CLI::ArgumentMismatch &error) {
    throw Failure(Exit::Usage,
                  mismatch(error.what()) + "; see " + command + " --help");
  } catch (const CLI::ParseError &error) {
    throw Failure(Exit::Usage,
                  std::string(error.what()) + "; see " + command + " --help");
  }
  return std::nullopt;
}

} // namespace pipec
