//===- PartitionCommand.h - pipec partition ---------------------*- C++ -*-===//
#pragma once

namespace pipec {

/// `pipec partition GRAPH …`; argv[0] is "partition". Prints the result to
/// stdout and returns the exit code. Throws Failure for everything a user can
/// cause.
int partitionCommand(int argc, char **argv);

} // namespace pipec
