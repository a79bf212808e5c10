//===- Terminal.cpp - how wide, and in color? ----------------------------===//
#include "compiler/driver/Terminal.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/ioctl.h>
#include <unistd.h>

namespace pipec {

report::TextOptions terminalOptions() {
  report::TextOptions options;
  winsize size{};
  if (!isatty(STDOUT_FILENO))
    return options;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    options.width = std::clamp<int>(size.ws_col, 60, 240);
  const char *terminal = std::getenv("TERM");
  options.color = !std::getenv("NO_COLOR") && terminal &&
                  std::strcmp(terminal, "dumb") != 0;
  return options;
}

} // namespace pipec
