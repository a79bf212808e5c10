//===- CompileMemory.h - what attempts at a plan share ----------*- C++ -*-===//
//
// Under a limit, and under `auto`, many plans of one model are tried before one
// is made. The model is read once, a plan that was tried is not searched for
// again, and what there is to remark is said once.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/driver/CompileOptions.h"
#include "compiler/driver/Planning.h"
#include "compiler/onnx/Import.h"

#include "mlir/IR/BuiltinOps.h"

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace pipec {

/// The plan that was found under options that decide about it, or why none was.
struct KnownDecision {
  CompileOptions options;
  std::optional<Decision> found;
  std::exception_ptr refusal;

  /// Throws the refusal.
  const Decision &get() const;

  /// Without what only says what is shown.
  static CompileOptions deciding(CompileOptions options);
};

/// A model that was read, and what it costs.
struct KnownModel {
  CompileOptions options; ///< that decide about it
  mlir::OwningOpRef<mlir::ModuleOp> module;
  onnx::ImportReport report;
  std::vector<std::string> notes; ///< on what is in it
  plan::CostGraph graph;
  ModelFacts facts;

  /// Whether stages may compute their activations again.
  static bool recomputes(const CompileOptions &options);
  static CompileOptions deciding(CompileOptions options);
};

/// What one compilation leaves to the next of the same model.
struct CompileMemory {
  CompileOptions asked; ///< as they were typed, whatever is tried for them
  /// Of a model too large to be tried the last one.
  std::vector<KnownDecision> decisions;
  std::optional<KnownModel> model;
  std::string batch;              ///< the dimension's name
  std::vector<std::string> notes; ///< that have been said, or will be
  bool hasRead = false;           ///< the weights, for NaN among them
  /// What a compile of options comes to where their limit binds: it tries as
  /// many plans as that takes, and counts. Throws Failure(NoFit, Usage).
  std::function<plan::Replanned(const CompileOptions &)> counted;

  /// What is known of these options, null where nothing is.
  const KnownDecision *find(const CompileOptions &deciding) const;

  /// Remembers a note; false where it was known.
  bool isNew(const std::string &note);
};

} // namespace pipec
