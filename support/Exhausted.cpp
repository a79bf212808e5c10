//===- Exhausted.cpp - a process that has no more of something ------------===//
#include "support/Exhausted.h"

#include <sys/resource.h>

namespace pipec {

std::string addressLimit() {
  struct rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return "";
  return " (it may have " + std::to_string(limit.rlim_cur >> 10) +
         " KiB in all: ulimit -v)";
}

Exhausted noMemory() {
  return {Exit::NoFit, "this process gets no more memory" + addressLimit() +
                           "; raise what limits it, or give it less to do"};
}

Exhausted noThread(const std::string &error) {
  return {Exit::Unavailable,
          "no thread or process can be started: " + error + addressLimit() +
              "; there may be a limit on them (ulimit -u, or that of a "
              "container): raise it"};
}

} // namespace pipec
