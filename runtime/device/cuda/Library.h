//===- Library.h - libraries that are opened when needed --------*- C++ -*-===//
//
// One build runs everywhere: NVIDIA's libraries are no dependencies of the
// program. Each is a table of entry points (Driver.def ...), which are all
// looked up when the library is first needed.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>

namespace pipec::cuda {

/// What a library says of a status: cublasLtGetStatusString,
/// cudnnGetErrorString, ncclGetErrorString.
using StatusText = const char *(int status);
/// What it says of the last failure: cudnnGetLastErrorString (of version 9),
/// ncclGetLastError, which takes null as well.
using LastErrorInto = void(char *text, size_t bytes);
using LastErrorOf = const char *(void *communicator);

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

  /// The function of this name; null when the library has none.
  template <typename F> F *findIfThere(const char *symbol) const {
    return reinterpret_cast<F *>(addressIfThere(symbol));
  }

  /// Failure(Unavailable): the call `what` has not returned 0. `meaning`: what
  /// the library says of that, may be empty.
  [[noreturn]] void fail(int status, const char *what,
                         const std::string &meaning) const;

private:
  void *address(const char *symbol) const;
  void *addressIfThere(const char *symbol) const;

  void *handle = nullptr;
  const char *name, *logging, *file, *remedy;
};

} // namespace pipec::cuda
