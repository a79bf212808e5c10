//===- StageLibrary.cpp - a compiled stage, loaded ------------------------===//
#include "runtime/StageLibrary.h"
#include "runtime/program/Sha256.h"
#include "support/Failure.h"

#include <dlfcn.h>
#include <mutex>
#include <set>

namespace pipec {
namespace {

[[noreturn]] void bad(const std::string &path, const std::string &what) {
  throw Failure(Exit::BadPlan,
                path + ": " + what + "; compile the model again");
}

/// The loader maps a file as it is: one that was cut off or written over would
/// end the process with a signal, not with an error.
void checkWhole(const std::string &path, const std::string &sha256) {
  const char *remedy =
      "; copy the plan folder again or compile the model again";
  std::string found;
  try {
    found = sha256OfFile(path);
  } catch (const Failure &failure) {
    throw Failure(Exit::BadPlan, failure.what() + std::string(remedy));
  }
  if (found != sha256)
    throw Failure(Exit::BadPlan,
                  path +
                      ": is not the stage program that was compiled (its "
                      "digest is not the one in plan.json)" +
                      remedy);
}

PipecTask need(void *library, const std::string &path, const char *name) {
  void *symbol = dlsym(library, name);
  if (!symbol)
    bad(path, std::string("has no function ") + name);
  return reinterpret_cast<PipecTask>(symbol);
}

void loadOnce(void *library) {
  // Ranks that are threads of one process share the library.
  static std::mutex mutex;
  static std::set<void *> loaded;
  std::lock_guard lock(mutex);
  if (loaded.insert(library).second)
    if (void *load = dlsym(library, "pipec_load"))
      reinterpret_cast<void (*)()>(load)();
}

} // namespace

StageLibrary StageLibrary::open(const std::string &planFolder,
                                const plan::Stage &stage, bool trains) {
  // With a slash in front dlopen never searches the system's folders.
  const std::string path =
      (planFolder[0] == '/' ? "" : "./") + planFolder + "/" + stage.library;
  checkWhole(path, stage.sha256);
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    bad(path, dlerror());
  auto *version =
      static_cast<const int32_t *>(dlsym(library, "pipec_abi_version"));
  if (!version || *version != PIPEC_ABI_VERSION)
    bad(path, version ? "is for version " + std::to_string(*version) +
                            " of the stage interface, not " +
                            std::to_string(PIPEC_ABI_VERSION)
                      : std::string("is not a stage program"));
  StageLibrary result;
  result.handle = library, result.path = path;
  result.forward = need(library, path, "pipec_forward");
  if (trains) {
    if (stage.split_backward) {
      result.backwardInput = need(library, path, "pipec_backward_input");
      result.backwardWeight = need(library, path, "pipec_backward_weight");
    } else {
      result.backward = need(library, path, "pipec_backward");
    }
    bool updates = false;
    for (const plan::StageWeight &weight : stage.weights)
      updates |= !weight.gradients.empty();
    if (updates)
      result.update = need(library, path, "pipec_update");
    if (stage.tracks)
      result.track = need(library, path, "pipec_track");
  }
  loadOnce(library);
  return result;
}

} // namespace pipec
