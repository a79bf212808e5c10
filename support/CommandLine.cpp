//===- CommandLine.cpp - one way to read a command line -------------------===//
#include "support/CommandLine.h"

#include "support/ErrorText.h"
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

/// The option that this argument names and takes its value from the next one,
/// or null.
const CLI::Option *takesNext(const CLI::App &app, const std::string &argument) {
  const CLI::Option *option =
      argument.starts_with("-") ? app.get_option_no_throw(argument) : nullptr;
  return option && option->get_expected_min() > 0 ? option : nullptr;
}

/// Values that nobody means: none, where a script's variable is not set, and
/// the name of another option, where one has been forgotten.
void checkValues(const CLI::App &app, int argc, char **argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--")
      return;
    // CLI11 gives "--name=" the next word, whatever that is.
    const size_t equals = argument.find('=');
    const bool isLeftOut =
        equals != std::string::npos && equals + 1 == argument.size();
    const std::string name = isLeftOut ? argument.substr(0, equals) : argument;
    if (!takesNext(app, name))
      continue;
    const std::string value = !isLeftOut && ++i < argc ? argv[i] : "";
    if (value.empty() ||
        (value.starts_with("-") &&
         app.get_option_no_throw(value.substr(0, value.find('=')))))
      throw CLI::ArgumentMismatch(name + ": 1 required",
                                  CLI::ExitCodes::ArgumentMismatch);
  }
}

/// "Could not convert: --effort = x", in plain words.
std::string unreadable(const CLI::App &app, const std::string &text) {
  const size_t begin = text.find("--"), end = text.find(" = ", begin);
  if (begin == std::string::npos || end == std::string::npos)
    return text;
  const std::string name = text.substr(begin, end - begin);
  return takesNext(app, name)
             ? name + " needs a number, not '" + text.substr(end + 3) + "'"
             : name + " takes no value";
}

/// "--loss: At Most 1 required but received 2" and "--loss: 1 required TEXT
/// missing", in plain words.
std::string mismatch(const std::string &text) {
  const size_t colon = text.find(": ");
  const std::string what = colon == std::string::npos ? "" : text.substr(colon);
  if (what.starts_with(": At Most 1 required"))
    return text.substr(0, colon) + " is given more than once";
  if (what.starts_with(": 1 required"))
    return text.substr(0, colon) + " needs a value";
  return text;
}

std::string inPlainWords(const CLI::App &app, const CLI::ParseError &error) {
  if (dynamic_cast<const CLI::ExtrasError *>(&error))
    return unexpected(app);
  if (dynamic_cast<const CLI::ConversionError *>(&error))
    return unreadable(app, error.what());
  return mismatch(error.what());
}

/// The first word that is no option and no option's value.
std::string firstWord(const CLI::App &app, int argc, char **argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--")
      return i + 1 < argc ? argv[i + 1] : "";
    if (!argument.starts_with("-"))
      return argument;
    if (takesNext(app, argument))
      ++i;
  }
  return "";
}

Invocation asked;

} // namespace

const Invocation &invocation() { return asked; }

std::optional<int> parseCommandLine(CLI::App &app, const std::string &command,
                                    int argc, char **argv) {
  app.set_version_flag("--version",
                       command.substr(0, command.find(' ')) + " " + kVersion);
  asked = {firstWord(app, argc, argv), asksForJson(argc, argv)};
  try {
    checkValues(app, argc, argv);
    app.parse(argc, argv);
  } catch (const CLI::Success &done) {
    return app.exit(done, std::cout, std::cerr);
  } catch (const CLI::ParseError &error) {
    // One that is not known may be why another one is missing.
    std::string text = unknownOption(app);
    if (text.empty())
      text = inPlainWords(app, error);
    throw Failure(Exit::Usage, text + "; see " + command + " --help");
  }
  return std::nullopt;
}

} // namespace pipec
