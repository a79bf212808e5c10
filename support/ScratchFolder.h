//===- ScratchFolder.h - a folder for files that nobody keeps ---*- C++ -*-===//
#pragma once

#include "support/WorkingCopy.h"

namespace pipec {

/// A folder of this process alone, gone with this object. One whose owner was
/// killed goes when the next of the same name is made in the same place.
class ScratchFolder {
public:
  /// "PARENT/NAME-1234abcd". Failure(CannotWrite).
  ScratchFolder(const std::string &parent, const std::string &name);
  ~ScratchFolder();

  const std::string &path() const { return copy.path(); }
  std::string operator/(const std::string &name) const {
    return path() + "/" + name;
  }

private:
  WorkingCopy copy;
};

} // namespace pipec
