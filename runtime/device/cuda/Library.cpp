//===- Library.cpp - libraries that are opened when needed ----------------===//
#include "runtime/device/cuda/Library.h"
#include "support/Failure.h"

#include <dlfcn.h>

namespace pipec::cuda {

Library::Library(const char *name, const char *logging,
                 std::initializer_list<const char *> files, const char *remedy)
    : name(name), logging(logging), file(*files.begin()), remedy(remedy) {
  std::string why;
  for (const char *candidate : files) {
    handle = dlopen(candidate, RTLD_NOW | RTLD_GLOBAL);
    if (handle)
      return;
    if (why.empty())
      why = dlerror();
  }
  throw Failure(Exit::Unavailable, std::string("the plan runs on GPUs, but ") +
                                       file + " cannot be opened (" + why +
                                       "); " + remedy);
}

void *Library::address(const char *symbol) const {
  if (void *found = addressIfThere(symbol))
    return found;
  throw Failure(Exit::Unavailable, std::string(file) +
                                       " is too old: it has no " + symbol +
                                       "; " + remedy);
}

void *Library::addressIfThere(const char *symbol) const {
  return dlsym(handle, symbol);
}

void Library::fail(int status, const char *what,
                   const std::string &meaning) const {
  throw Failure(Exit::Unavailable,
                std::string(name) + " has failed: " + what + " returned " +
                    std::to_string(status) +
                    (meaning.empty() ? "" : " (" + meaning + ")") + "; " +
                    logging + " says more");
}

} // namespace pipec::cuda
