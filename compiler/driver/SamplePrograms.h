//===- SamplePrograms.h - little training programs at random ----*- C++ -*-===//
#pragma once

#include "compiler/driver/MeasuredMemory.h"
#include "mlir/IR/BuiltinOps.h"

namespace pipec {

/// The numbers that a model input may have: whole ones of [0, `limit`), or any
/// where it is 0.
struct SampleInput {
  std::string name;
  int64_t limit = 0;
};

struct SampleProgram {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<SampleInput> inputs;
};

/// A model of a kind that `number` chooses, with its loss: convolutions, layers
/// of attention, a perceptron or a recurrent cell, of sizes that `choose`
/// gives. Of `wide` ones the weights and two microbatches are megabytes.
SampleProgram writeProgram(mlir::MLIRContext &context, Choices &choose,
                           int number, bool wide);

} // namespace pipec
