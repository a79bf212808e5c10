//===- Compile.h - `pipec MODEL.onnx` ---------------------------*- C++ -*-===//

#pragma once

#include "compiler/driver/WithinLimit.h"

namespace pipec {

/// Reads the command line, compiles, writes the plan, prints the summary.
/// Returns the exit code; throws Failure.
int compileCommand(int argc, char **argv);

/// What the plan of these options would be; nothing is written. Throws
/// OverLimit, Failure.
Prospect prospectOf(const CompileOptions &options);

} // namespace pipec
