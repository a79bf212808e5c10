//===- CommandLine.cpp - one way to read a command line -------------------===//
#include "support/CommandLine.h"

#include "support/Failure.h"
#include "support/UnknownName.h"
#include "support/Version.h"

#include <CLI/CLI.hpp>

#include <iostream>

namespace pipec {
namespace {

/// What an argument that is none may have meant: ", did you mean --stages?"
std::string suggestion(const CLI::App &app, const std::string &name) {
  if (name.size() < 4)
    return "";
  std::vector<std::string> known;
  for (const CLI::Option *option : app.get_options())
    for (const std::string &one : option->get_lnames())
      known.push_back("--" + one);
  const std::string best = nearestName(name, known);
  return best.empty() ? "" : ", did you mean " + best + "?";
}

/// "there is no option --step, did you mean --steps?", or "" where all options
/// are known. What follows one was meant as its value.
std::string unknownOption(const CLI::App &app) {
  for (const std::string &argument : app.remaining())
    if (argument.size() > 1 && argument[0] == '-' && argument != "--") {
      const std::string name = argument.substr(0, argument.find('='));
      return "there is no option " + name + suggestion(app, name);
    }
  return "";
}

/// Words that are no option's value and more than the command takes.
std::string unexpected(const CLI::App &app) {
  std::string words;
  for (const std::string &argument : app.remaining())
    if (argument != "--")
      words += " '" + argument + "'";
  return "unexpected:" + words;
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
  } catch (const CLI::ParseError &error) {
    // One that is not known may be why another one is missing.
    std::string text = unknownOption(app);
    if (text.empty())
      text = dynamic_cast<const CLI::ExtrasError *>(&error)
                 ? unexpected(app)
                 : mismatch(error.what());
    throw Failure(Exit::Usage, text + "; see " + command + " --help");
  }
  return std::nullopt;
}

} // namespace pipec
