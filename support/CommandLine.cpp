//===- CommandLine.cpp - one way to read a command line -------------------===//
#include "support/CommandLine.h"

#include "support/Failure.h"
#include "support/Version.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <vector>

namespace pipec {
namespace {

/// Letters to insert, delete or replace to come from one to the other.
size_t editDistance(const std::string &from, const std::string &to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replaced = diagonal + (from[i - 1] != to[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

/// ", did you mean --stages?" where an option's name is close to the first
/// argument that is none.
std::string suggestion(const CLI::App &app) {
  for (const std::string &argument : app.remaining()) {
    if (argument.size() < 4 || argument[0] != '-')
      continue;
    const std::string name = argument.substr(0, argument.find('='));
    std::string best;
    size_t least = name.size() / 3 + 1; // a third of its letters may be wrong
    for (const CLI::Option *option : app.get_options())
      for (const std::string &known : option->get_lnames())
        if (size_t edits = editDistance(name, "--" + known); edits < least) {
          least = edits;
          best = "--" + known;
        }
    return best.empty() ? "" : ", did you mean " + best + "?";
  }
  return "";
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
  } catch (const CLI::ParseError &error) {
    throw Failure(Exit::Usage,
                  std::string(error.what()) + "; see " + command + " --help");
  }
  return std::nullopt;
}

} // namespace pipec
