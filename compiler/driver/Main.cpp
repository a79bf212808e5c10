//===- Main.cpp - the pipec program ---------------------------------------===//
#include "compiler/driver/Main.h"

#include "compiler/driver/CalibrateCommand.h"
#include "compiler/driver/Compile.h"
#include "compiler/driver/InspectCommand.h"
#include "compiler/driver/ScheduleCommand.h"
#include "compiler/driver/Tables.h"
#include "compiler/plan/command/PartitionCommand.h"
#include "support/CommandLine.h"
#include "support/ErrorText.h"
#include "support/Failure.h"
#include "support/ShellWord.h"
#include "support/StandardOutput.h"
#include "support/UnknownName.h"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <vector>

namespace pipec {
namespace {

using Command = int (*)(int, char **);

struct Subcommand {
  const char *name;
  Command run;
};

constexpr Subcommand kSubcommands[] = {
#define SUBCOMMAND(NAME, FUNCTION) {NAME, FUNCTION},
#include "compiler/driver/Subcommands.def"
};

/// The first word is a command or a model. One that is neither is told what it
/// may have meant, before its other words are found wrong.
void checkFirstWord(const std::string &word) {
  std::vector<std::string> commands;
  for (const Subcommand &command : kSubcommands)
    commands.emplace_back(command.name);
  if (word.empty())
    throw Failure(Exit::Usage,
                  "give the path of an ONNX model, or a command: " +
                      listed(commands) + "; see pipec --help");
  std::error_code ignored;
  if (const std::string shown = shellWord(word);
      std::filesystem::exists(word + "/plan.json", ignored))
    throw Failure(Exit::Usage,
                  word + " is a plan: run it with pipec-run " + shown +
                      ", or look at it with pipec inspect " + shown);
  if (word[0] == '-' || std::filesystem::exists(word, ignored))
    return;
  const std::string nearest = nearestName(word, commands);
  const bool bare = word.find_first_of("./") == std::string::npos;
  if (!nearest.empty() || bare)
    throw Failure(nearest.empty() ? Exit::NoInput : Exit::Usage,
                  "'" + word + "' is neither a command" +
                      didYouMean(word, commands) +
                      " nor a file here; commands: " + listed(commands) +
                      "; all else is the path of an ONNX model");
}

const Subcommand *subcommand(int argc, char **argv) {
  for (const Subcommand &command : kSubcommands)
    if (argc > 1 && std::strcmp(argv[1], command.name) == 0)
      return &command;
  return nullptr;
}

int dispatch(int argc, char **argv) {
  if (const Subcommand *command = subcommand(argc, argv))
    return command->run(argc - 1, argv + 1);
  checkFirstWord(argc > 1 ? argv[1] : "");
  return compileCommand(argc, argv);
}

} // namespace

int pipecMain(int argc, char **argv) {
  const auto say = [&](const Failure &failure) {
    std::string input = invocation().input;
    if (input.empty() && argc > 1 && argv[1][0] != '-' &&
        !subcommand(argc, argv))
      input = argv[1]; // refused before it was parsed
    std::cerr << errorText("pipec", failure, input, asksForJson(argc, argv));
    return static_cast<int>(failure.code);
  };
  std::signal(SIGXFSZ, SIG_IGN); // the write says so
  try {
    return endOfOutput(dispatch(argc, argv));
  } catch (const Failure &failure) {
    return say(failure);
  } catch (const std::bad_alloc &) {
    return say({Exit::Internal, "not enough memory on this machine"});
  } catch (const std::exception &e) {
    return say({Exit::Internal, std::string("this is a bug in pipec: ") +
                                    e.what() +
                                    "; please report the command line"});
  }
}

} // namespace pipec
