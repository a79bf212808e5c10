//===- EmittedCode.h - the code of stages as files --------------*- C++ -*-===//
#pragma once

#include <string>
#include <vector>

namespace pipec {

/// --emit PHASE -o OUTPUT of a plan of so many stages. Failure(Usage) when that
/// is several objects without a name, or one of `inputs` has the name of one.
void checkCodeFiles(const std::string &phase, const std::string &output,
                    size_t stages, const std::vector<std::string> &inputs);

/// Writes the code of every stage: a file a stage, since no tool takes two of
/// them in one. The names of several are OUTPUT's with ".stage0" … before the
/// extension. Without OUTPUT text goes to stdout, one stage after the other.
/// The names of the files.
std::vector<std::string> writeCode(const std::string &phase,
                                   const std::string &output,
                                   const std::vector<std::string> &stages);

} // namespace pipec
