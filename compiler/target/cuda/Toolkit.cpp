//===- Toolkit.cpp - what is installed of CUDA ----------------------------===//
#include "compiler/target/cuda/Toolkit.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

#include <cstdlib>

using namespace pipec::cuda;

/// The toolkit's folders, best first.
static llvm::SmallVector<std::string> roots() {
  for (const char *variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char *root = std::getenv(variable); root && *root)
      return {root};
  llvm::SmallVector<std::string> roots;
  llvm::SmallString<128> real;
  if (auto ptxas = llvm::sys::findProgramByName("ptxas"))
    if (!llvm::sys::fs::real_path(*ptxas, real)) {
      llvm::StringRef folder = llvm::sys::path::parent_path(real);
      roots.push_back(llvm::sys::path::parent_path(folder).str());
    }
  roots.push_back("/usr/local/cuda");
  return roots;
}

Toolkit Toolkit::find() {
  auto look = [&](llvm::StringRef path) {
    for (const std::string &root : roots()) {
      llvm::SmallString<128> candidate(root);
      llvm::sys::path::append(candidate, path);
      if (llvm::sys::fs::exists(candidate))
        return candidate.str().str();
    }
    return std::string();
  };
  return {look("bin/ptxas"), look("nvvm/libdevice/libdevice.10.bc")};
}
