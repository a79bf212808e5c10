//===- TerminalProgress.h - the progress line of a command ------*- C++ -*-===//
#pragma once

#include <memory>

namespace pipec {

/// While it lives, the phases under way (support/Phase.h) are a line on stderr,
/// where that is a terminal and the command is not quiet; else it does nothing.
/// What is printed through std::cout and std::cerr takes the line's place, and
/// it is gone when a signal ends the program.
class TerminalProgress {
public:
  explicit TerminalProgress(bool quiet);
  ~TerminalProgress();

private:
  struct Line;
  std::unique_ptr<Line> line;
};

/// For who ends the program at once, in the handler of a signal as well: no
/// line stays, and none is drawn any more.
void abandonProgress();

} // namespace pipec
