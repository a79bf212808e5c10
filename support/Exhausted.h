//===- Exhausted.h - a process that has no more of something ----*- C++ -*-===//
#pragma once

#include "support/Failure.h"

#include <new>
#include <string>
#include <system_error>

namespace pipec {

/// " (it may have 45000 KiB in all: ulimit -v)" where this process's addresses
/// are limited, else nothing.
std::string addressLimit();

/// Of this process, whatever other ranks have.
class Exhausted : public Failure {
public:
  using Failure::Failure;
};

/// NoFit: memory has ended.
Exhausted noMemory();

/// Unavailable: a thread or process cannot be started, as `error` says.
Exhausted noThread(const std::string &error);

/// Calls `work`; where memory or threads end in it, throws Exhausted.
template <class Work> auto whileItLasts(const Work &work) {
  try {
    return work();
  } catch (const std::bad_alloc &) {
    throw noMemory();
  } catch (const std::system_error &error) {
    if (error.code() != std::errc::resource_unavailable_try_again)
      throw;
    throw noThread(error.code().message());
  }
}

} // namespace pipec
