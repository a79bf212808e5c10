//===- StageLibrary.cpp - a compiled stage, loaded ------------------------===//
#include "runtime/StageLibrary.h"
#include "runtime/program/StageFiles.h"
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
  const std::string folder = (planFolder[0] == '/' ? "" : "./") + planFolder;
  const std::string path = folder + "/" + stage.library;
  // The loader maps a file as it is: one that was cut off or written over would
  // end the process with a signal, not with an error.
  plan::checkStageFile(folder, stage);
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
