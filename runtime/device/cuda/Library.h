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
  /// Opens the first of `files` that is there. `name`: "NCCL"; `logging`: what
  /// makes it tell more, "NCCL_DEBUG=WARN"; `remedy`: "install the driver of
  /// the GPU". Failure(Unavailable) names the first file and the remedy.
  Library(const char *name, const char *logging,
          std::initializer_list<const char *> files, const char *remedy);

  /// Sets `function` to that of this name. Failure(Unavailable) when the
  /// library has none.
  template <typename F> void find(F *&function, const char *symbol) const {
    function = reinterpret_cast<F *>(address(symbol));
  }

  /// Failure(Unavailable) when the call `what` has not returned 0.
  void check(int status, const char *what) const;

private:
  void *address(const char *symbol) const;

  void *handle = nullptr;
  const char *name, *logging, *file, *remedy;
};

} // namespace pipec::cuda
