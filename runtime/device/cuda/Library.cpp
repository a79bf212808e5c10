//===- Library.cpp - libraries that are opened when needed ----------------===//
#include "runtime/device/cuda/Library.h"
#include "support/Failure.h"

#include <dlfcn.h>

namespace pipec::cuda {

Library::Library(std::initializer_list<const char *> files, const char *remedy)
    : file(*files.begin()), remedy(remedy) {
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

void *Library::symbol(const char *name) const {
  if (void *found = dlsym(handle, name))
    return found;
  throw Failure(Exit::Unavailable, std::string(file) +
                                       " is too old: it has no " + name + "; " +
                                       remedy);
}

} // namespace pipec::cuda
