//===- DiagnosticCollector.h - MLIR's errors in a report --------*- C++ -*-===//
#pragma once

#include "support/Diagnostics.h"

#include "mlir/IR/Diagnostics.h"

namespace pipec {

/// While it lives, MLIR errors become entries of the report, with the ONNX node
/// they are about.
class DiagnosticCollector {
public:
  DiagnosticCollector(mlir::MLIRContext &context, Diagnostics &out);

private:
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace pipec
