//===- ErrorText.h - how a program says what stopped it ---------*- C++ -*-===//
#pragma once

#include "support/Failure.h"

#include <string>
#include <vector>

namespace pipec {

/// Whether the arguments ask for JSON, also where nothing else of them can be
/// understood.
bool asksForJson(int argc, char **argv);

/// "pipec: error: …", a line; with `json` the object of Diagnostics::json about
/// `input`, its cause up to the first "; ", its remedy behind that, with what
/// was to be said before.
std::string errorText(const std::string &program, const Failure &failure,
                      const std::string &input, bool json,
                      const std::vector<std::string> &notes = {});

} // namespace pipec
