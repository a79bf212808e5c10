//===- ShellWord.h - a word as one types it into a shell --------*- C++ -*-===//
#pragma once

#include <string>

namespace pipec {

/// The word, in quotes where a shell would take it for something else: commands
/// that are shown are there to be copied.
std::string shellWord(const std::string &word);

} // namespace pipec
