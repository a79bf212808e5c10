//===- CudnnLibrary.cpp - libcudnn, opened when needed --------------------===//
#include "runtime/device/cuda/CudnnLibrary.h"

namespace pipec::cudnn {

const Entries &entries() {
  static const Entries loaded(
      "cuDNN", "CUDNN_LOGLEVEL_DBG=1",
      {"libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"},
      "install cuDNN (pip install nvidia-cudnn-cu13), and name its folder in "
      "LD_LIBRARY_PATH");
  return loaded;
}

void check(int status, const char *what) {
  if (!status)
    return;
  using namespace pipec::cuda;
  auto *text = entries().findIfThere<StatusText>("cudnnGetErrorString");
  auto *more = entries().findIfThere<LastErrorInto>("cudnnGetLastErrorString");
  std::string meaning = text ? text(status) : "";
  char last[512] = "";
  if (more)
    more(last, sizeof last);
  if (last[0])
    meaning += (meaning.empty() ? "" : ": ") + std::string(last);
  entries().fail(status, what, meaning);
}

} // namespace pipec::cudnn
