//===- Library.h - libraries that are opened when needed --------*- C++ -*-===//
//
// One build runs everywhere: NVIDIA's libraries are no dependencies of the
// program. Each is a table of entry points (Driver.def ...), which are all
// looked up when the library is first needed.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <initializer_list>

namespace pipec::cuda {

class Library {
public:
  /// Opens the first of `files` that is there. `remedy`: "install the driver of
  /// the GPU". Failure(Unavailable) names the first file and the remedy.
  Library(std::initializer_list<const char *> files, const char *remedy);

  /// Failure(Unavailable) when the library has no such function.
  void *symbol(const char *name) const;

private:
  void *handle = nullptr;
  const char *file, *remedy;
};

} // namespace pipec::cuda
