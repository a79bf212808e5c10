//===- CompileMemory.h - what attempts at a plan share ----------*- C++ -*-===//
//
// Under a limit, and under `auto`, many plans of one model are tried before one
// is made. The model is read once, a plan that is tried last is not searched
// for again, and what there is to remark is said once.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/driver/CompileOptions.h"
#include "compiler/driver/Planning.h"
#include "compiler/onnx/Import.h"

#include "mlir/IR/BuiltinOps.h"

#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace pipec {

/// The last plan that was found, under options that decide about it: the one
/// that was tried last under a limit is made.
struct LastDecision {
  CompileOptions options;
  Decision decision;

  /// Without what only says what is shown.
  static CompileOptions deciding(CompileOptions options);
};

/// The last options under which none was found, which are refused for the same
/// reason again.
struct LastRefusal {
  CompileOptions options; ///< that decide about it
  std::exception_ptr reason;
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
  std::optional<LastDecision> last;
  std::optional<LastRefusal> refused;
  std::optional<KnownModel> model;
  std::string batch;              ///< the dimension's name
  std::vector<std::string> notes; ///< that have been said, or will be
  bool hasRead = false;           ///< the weights, for NaN among them

  /// Remembers a note; false where it was known.
  bool isNew(const std::string &note);
};

} // namespace pipec
