//===- WorkingCopy.h - what becomes an output when it is whole --*- C++ -*-===//
#pragma once

#include <string>

namespace pipec {

/// A name beside an output for what is written meanwhile: no other writer has
/// it, on any machine. It is locked as long as its writer lives, and who makes
/// another one for the same output removes those whose writers have died: a run
/// that was killed leaves nothing for good.
class WorkingCopy {
public:
  /// A scratch folder is its maker's alone, and never becomes anything.
  enum class Kind { File, Folder, Scratch };

  /// Makes it, empty. Failure(CannotWrite) names the output, or `shown`.
  WorkingCopy(const std::string &output, Kind kind,
              const std::string &shown = "");
  /// Ends the lock; what has the name by now stays.
  ~WorkingCopy();
  WorkingCopy(const WorkingCopy &) = delete;
  WorkingCopy &operator=(const WorkingCopy &) = delete;

  const std::string &path() const { return name; }

private:
  std::string name;
  int lock = -1;
};

} // namespace pipec
