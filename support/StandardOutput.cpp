//===- StandardOutput.cpp - what was printed has arrived ------------------===//
#include "support/StandardOutput.h"
#include "support/Failure.h"

#include <cstdio>
#include <iostream>

namespace pipec {

int endOfOutput(int code) {
  // Both, as std::cout may hold its own bytes, and remembers its own errors.
  std::cout.flush();
  const bool arrived = std::fflush(stdout) == 0 && !std::ferror(stdout);
  if (code == 0 && (!arrived || !std::cout))
    throw Failure(Exit::CannotWrite,
                  "cannot write to standard output; where it goes to a file, "
                  "free some space there or choose another place");
  return code;
}

} // namespace pipec
