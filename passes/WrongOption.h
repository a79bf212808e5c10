//===- WrongOption.h - errors that another option cures ---------*- C++ -*-===//
//
// Most of what a pass refuses is wrong with the model. Where it is a value that
// the user has typed, the error says so: the driver has another exit code for
// it.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "mlir/IR/Diagnostics.h"

#include "llvm/ADT/STLExtras.h"

namespace pipec {

inline constexpr llvm::StringLiteral kWrongOption = "wrong option";

/// The error, marked as one of the command line.
inline mlir::InFlightDiagnostic wrongOption(mlir::InFlightDiagnostic error) {
  if (mlir::Diagnostic *diagnostic = error.getUnderlyingDiagnostic())
    diagnostic->getMetadata().emplace_back(llvm::StringRef(kWrongOption));
  return error;
}

inline bool isWrongOption(mlir::Diagnostic &diagnostic) {
  return llvm::any_of(
      diagnostic.getMetadata(), [](mlir::DiagnosticArgument &mark) {
        return mark.getKind() ==
                   mlir::DiagnosticArgument::DiagnosticArgumentKind::String &&
               mark.getAsString() == kWrongOption;
      });
}

} // namespace pipec
