//===- Compile.cpp - `pipec MODEL.onnx` -----------------------------------===//
#include "compiler/driver/Compile.h"

#include "compiler/driver/Compiler.h"
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"
#include "support/Phase.h"
#include "support/TerminalProgress.h"

#include <algorithm>
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

/// A limit of 60 bytes is one of 60 GiB whose unit was left out: where a single
/// weight takes more, the error says so.
static Failure withUnit(const CompileOptions &options,
                        const CompileMemory &memory, const Failure &failure) {
  if (failure.code != Exit::NoFit || options.limitHasUnit || !memory.model)
    return failure;
  int64_t largest = 0;
  for (auto weight : (*memory.model->module).getOps<nn::ParameterOp>())
    largest = std::max(largest, nn::byteSize(weight.getTensorType()));
  if (options.memoryLimit >= largest)
    return failure;
  constexpr int64_t kMostGiB = 1024; // who has more of them means smaller ones
  const std::string number = std::to_string(options.memoryLimit),
                    unit = options.memoryLimit <= kMostGiB ? "GiB" : "MiB";
  return {failure.code, failure.what() + (". --memory-limit " + number) +
                            " is " + number + " bytes; did you mean " + number +
                            unit + "?"};
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

/// What a compile of the options would come to, with a model of its own: rows
/// of what-if tables are planned at the same time.
static plan::Replanned countedPlan(CompileOptions options, Purpose purpose) {
  options.quiet = true;
  options.dumpDirectory.clear();
  MLIRContext context;
  prepare(context);
  CompileMemory memory;
  memory.asked = options;
  plan::Replanned found;
  const Attempt attempt = [&](const CompileOptions &o) {
    found = Compiler(o, purpose, context, &memory).replanned();
    return 0;
  };
  const Trial trial = [&](const CompileOptions &o) {
    return Compiler(o, purpose, context, &memory).prospect();
  };
  withinLimitUnadvised(options, attempt, trial);
  return found;
}

/// Plans whose stages several devices divide are not lowered, and fit where the
/// planner says so. Those that turn out to need no groups are as others.
static int compileDivided(const CompileOptions &options, const Attempt &compile,
                          const Attempt &compileWithin) {
  try {
    return compile(options);
  } catch (const OverLimit &) {
    CompileOptions whole = options;
    whole.tensorParallel = "1";
    return compileWithin(whole);
  }
}

int compileCommand(int argc, char **argv) {
  CompileOptions options;
  if (!parseCompileOptions(argc, argv, options))
    return 0;
  MLIRContext context;
  prepare(context);
  const TerminalProgress progress(options.quiet);
  const Purpose purpose = options.forwardOnly ? Purpose::Infer : Purpose::Train;
  CompileMemory memory;
  memory.asked = options;
  memory.counted = [&](const CompileOptions &o) {
    return countedPlan(o, purpose);
  };
  auto compile = [&](const CompileOptions &o) {
    return Compiler(o, purpose, context, &memory).run();
  };
  int plans = 0;
  auto plan = [&](CompileOptions o) {
    Phase phase("fitting into memory, plan");
    phase.at(++plans);
    o.quiet = true;
    o.dumpDirectory.clear();
    return Compiler(o, purpose, context, &memory).prospect();
  };
  const auto compileWithin = [&](const CompileOptions &o) {
    return withinLimit(o, compile, plan, memory.batch);
  };
  try {
    return options.tensorParallel == "1"
               ? compileWithin(options)
               : compileDivided(options, compile, compileWithin);
  } catch (const Failure &thrown) {
    const Failure failure = withUnit(options, memory, thrown);
    if (options.format != "json")
      throw failure;
    return report(options, memory, failure);
  }
}

} // namespace pipec
