//===- DiagnosticCollector.cpp - MLIR's errors in a report ----------------===//
#include "compiler/driver/DiagnosticCollector.h"

#include "passes/WrongOption.h"

#include "mlir/IR/Location.h"

using namespace mlir;

namespace pipec {

/// "cause; remedy" at a node's location.
static Diagnostic problemOf(mlir::Diagnostic &d) {
  Diagnostic problem;
  std::string text = d.str();
  size_t split = text.find("; ");
  problem.cause = text.substr(0, split);
  if (split != std::string::npos)
    problem.remedy = text.substr(split + 2);
  if (isWrongOption(d))
    problem.code = Exit::Usage;
  if (auto name = dyn_cast<NameLoc>(d.getLocation())) {
    problem.node = name.getName().str();
    if (auto line = dyn_cast<FileLineColLoc>(name.getChildLoc());
        line && line.getLine() > 0)
      problem.location =
          line.getFilename().str() + ":" + std::to_string(line.getLine());
  }
  return problem;
}

DiagnosticCollector::DiagnosticCollector(MLIRContext &context, Diagnostics &out)
    : handler(&context, [&out](mlir::Diagnostic &d) {
        if (d.getSeverity() == DiagnosticSeverity::Error)
          out.add(problemOf(d));
        else if (d.getSeverity() == DiagnosticSeverity::Remark)
          out.note(d.str());
        return success();
      }) {}

} // namespace pipec
