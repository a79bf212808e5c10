//===- UnknownName.h - what to say of a name that is none -------*- C++ -*-===//
#pragma once

#include <string>
#include <vector>

namespace pipec {

/// The shortest of `names` that `word` begins or is a letter short of; else the
/// nearest, of which a third of the letters may be wrong, small or not. Empty
/// when none is so close.
std::string nearestName(const std::string &word,
                        const std::vector<std::string> &names);

/// " (did you mean x?)", or nothing.
std::string didYouMean(const std::string &word,
                       const std::vector<std::string> &names);

/// "a, b, c"
std::string listed(const std::vector<std::string> &names);

/// "no strategy 'pipdream' (did you mean pipedream?); there are: dp, naive"
std::string unknownName(const std::string &what, const std::string &word,
                        const std::vector<std::string> &names);

} // namespace pipec
