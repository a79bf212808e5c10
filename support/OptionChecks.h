//===- OptionChecks.h - what values an option takes -------------*- C++ -*-===//
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace pipec {

/// A whole number that counts something: from 1 to `most`.
CLI::Validator aCount(int64_t most = int64_t(1) << 60);

/// A whole number from 0 to `most`.
CLI::Validator upTo(int64_t most);

/// What random numbers start from: from 0 to the most that 64 bits hold.
CLI::Validator aSeed();

/// A finite number above 0.
CLI::Validator aboveZero();

/// One of the words, which the message lists.
CLI::Validator oneOf(const std::vector<std::string> &words);

/// May be given many times, each time with one value: the word behind that is
/// not its own.
void takeMany(CLI::Option *option);

} // namespace pipec
