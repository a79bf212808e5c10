//===- Compile.h - `pipec MODEL.onnx` ---------------------------*- C++ -*-===//

#pragma once

namespace pipec {

/// Reads the command line, compiles, writes the plan, prints the summary.
/// Returns the exit code; throws Failure.
int compileCommand(int argc, char **argv);

} // namespace pipec
