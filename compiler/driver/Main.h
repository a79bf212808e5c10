//===- Main.h - the pipec program -------------------------------*- C++ -*-===//

#pragma once

namespace pipec {

/// Dispatches to a subcommand, or compiles the model that is named first.
/// Catches Failure: one line on stderr, and its exit code.
int pipecMain(int argc, char **argv);

} // namespace pipec
