//===- Compile.cpp - `pipec MODEL.onnx` -----------------------------------===//
#include "compiler/driver/Compile.h"

#include "compiler/driver/Compiler.h"
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"

#include <iostream>

using namespace mlir;

namespace pipec {

static void prepare(MLIRContext &context) {
  context.loadDialect<func::FuncDialect, nn::NNDialect, pipe::PipeDialect>();
  context.disableMultithreading();
}

Prospect prospectOf(const CompileOptions &options) {
  MLIRContext context;
  prepare(context);
  return Compiler(options, Purpose::Train, context).prospect();
}

/// What stops all attempts, with the notes that were kept for it.
static int report(const CompileOptions &options, const CompileMemory &memory,
                  const Failure &failure) {
  Diagnostics diagnostics;
  for (const std::string &note : memory.notes)
    diagnostics.note(note);
  diagnostics.add(failure);
  std::cerr << diagnostics.json(options.model);
  return static_cast<int>(failure.code);
}

int compileCommand(int argc, char **argv) {
  CompileOptions options;
  if (!parseCompileOptions(argc, argv, options))
    return 0;
  MLIRContext context;
  prepare(context);
  const Purpose purpose = options.forwardOnly ? Purpose::Infer : Purpose::Train;
  CompileMemory memory;
  auto compile = [&](const CompileOptions &o) {
    return Compiler(o, purpose, context, &memory).run();
  };
  auto plan = [&](CompileOptions o) {
    o.quiet = true;
    o.dumpDirectory.clear();
    return Compiler(o, purpose, context, &memory).prospect();
  };
  try {
    // What is not lowered fits where the planner says so.
    if (options.tensorParallel != "1")
      return compile(options);
    return withinLimit(options, compile, plan, memory.batch);
  } catch (const Failure &failure) {
    if (options.format != "json")
      throw;
    return report(options, memory, failure);
  }
}

} // namespace pipec
