//===- Launcher.h - from a command line to running ranks --------*- C++ -*-===//
#pragma once

namespace pipec {

/// pipec-run: parses the command line, then joins a job that a launcher has
/// started, or starts the plan's ranks on this machine; runs them; prints one
/// line for an error. Returns the process's exit code.
int pipecRun(int argc, char **argv);

} // namespace pipec
