// `pipec schedule` alone, for scripts and tests that need no compiler.
#include "compiler/driver/ScheduleCommand.h"
#include "support/Failure.h"

#include <cstring>
#include <iostream>

int main(int argc, char **argv) {
  try {
    if (argc < 2 || std::strcmp(argv[1], "schedule") != 0)
      throw pipec::Failure(pipec::Exit::Usage, "schedule is all there is here");
    return pipec::scheduleCommand(argc - 1, argv + 1);
  } catch (const pipec::Failure &failure) {
    std::cerr << "pipec: error: " << failure.what() << "\n";
    return static_cast<int>(failure.code);
  }
}
