//===- PartitionMain.cpp - pipec partition alone --------------------------===//
//
// The subcommand without the rest of the compiler, for tests and benchmarks.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/command/PartitionCommand.h"
#include "support/Failure.h"
#include "support/StandardOutput.h"

#include <cstring>
#include <iostream>

int main(int argc, char **argv) {
  bool named = argc > 1 && std::strcmp(argv[1], "partition") == 0;
  try {
    return pipec::endOfOutput(
        pipec::partitionCommand(argc - named, argv + named));
  } catch (const pipec::Failure &failure) {
    std::cerr << "pipec: error: " << failure.what() << "\n";
    return static_cast<int>(failure.code);
  }
}
