//===- onnx_import_fuzz.cpp - any bytes as a model ------------------------===//
//
// Whatever the bytes, the importer gives a program or a report with the code of a
// bad model. Build with -DPIPEC_FUZZ=ON -DPIPEC_SANITIZE=ON; the seeds are the
// committed models.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Import.h"

#include <cstdlib>
#include <iostream>

using namespace pipec;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  onnx::ImportOptions options;
  options.dims["batch"] = 2;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  Diagnostics diagnostics;
  onnx::ImportReport report;
  const auto module = onnx::importModel(
      llvm::StringRef(reinterpret_cast<const char *>(data), size), "fuzz.onnx",
      /*folder=*/"/nonexistent", options, context, diagnostics, report);
  if (module)
    return 0;
  // Names from the file go into both forms of the report.
  const std::string text = diagnostics.text("fuzz.onnx");
  if (diagnostics.json("fuzz.onnx").empty() || text.empty() ||
      diagnostics.exitCode() == Exit::Internal) {
    std::cerr << text;
    std::abort();
  }
  return 0;
}
