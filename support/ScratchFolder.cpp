//===- ScratchFolder.cpp - a folder for files that nobody keeps -----------===//
#include "support/ScratchFolder.h"

#include <filesystem>

namespace pipec {

ScratchFolder::ScratchFolder(const std::string &parent, const std::string &name)
    : copy(parent + "/" + name, WorkingCopy::Kind::Scratch) {}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path(), ignored);
}

} // namespace pipec
