//===- KnownValues.h - tensors whose elements are known now -----*- C++ -*-===//
#pragma once

#include "dialects/nn/eval/Literal.h"
#include "passes/Graph.h"

#include "llvm/ADT/StringMap.h"

#include <map>
#include <vector>

namespace pipec {

/// The values of ops that read no trained weight and no input: constants,
/// parameters that do not train, and what is made of them. Computed when they
/// are asked for and remembered, once for all ops that are alike: each layer
/// may make its own mask. Ops must not be erased meanwhile.
class KnownValues {
public:
  explicit KnownValues(mlir::func::FuncOp main) : main(main), sources(main) {}

  /// Of an op with one result; empty when it is not known. The same one for ops
  /// that do the same with the same operands.
  const nn::Literal &of(mlir::Operation *op);

private:
  mlir::Operation *firstLike(mlir::Operation *op);
  nn::Literal compute(mlir::Operation *op);
  nn::Literal parameter(llvm::StringRef name);

  mlir::func::FuncOp main;
  Sources sources;
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> firsts;
  /// By what an op does, and with what: addresses of what exists once.
  std::map<std::vector<const void *>, mlir::Operation *> alike;
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<nn::Literal>> literals;
  llvm::StringMap<nn::Literal> parameters;
};

} // namespace pipec
