//===- onnx_import_fuzz.cpp - any bytes as a model ------------------------===//
//
// Whatever the bytes, the importer gives a program or a report with the code of
// a bad model. Half of the mutations are libFuzzer's, the other half keep the
// file a model.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Import.h"
#include "test/fuzz/Mutate.h"

#include <cstdlib>
#include <iostream>

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size,
                                          size_t most, unsigned seed) {
  pipec::fuzz::Random random(seed);
  ::ONNX_NAMESPACE::ModelProto model;
  if (random() % 2 || !model.ParseFromArray(data, static_cast<int>(size)))
    return LLVMFuzzerMutate(data, size, most);
  pipec::fuzz::changeFields(random, model);
  const std::string bytes = model.SerializeAsString();
  if (bytes.size() > most)
    return size;
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  pipec::onnx::ImportOptions options;
  options.dims["batch"] = 2;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  pipec::Diagnostics diagnostics;
  pipec::onnx::ImportReport report;
  const auto module = pipec::onnx::importModel(
      llvm::StringRef(reinterpret_cast<const char *>(data), size), "fuzz.onnx",
      /*folder=*/"/nonexistent", options, context, diagnostics, report);
  if (module)
    return 0;
  // Names from the file go into both forms of the report.
  const std::string text = diagnostics.text("fuzz.onnx");
  if (diagnostics.json("fuzz.onnx").empty() || text.empty() ||
      diagnostics.exitCode() == pipec::Exit::Internal) {
    std::cerr << text;
    std::abort();
  }
  return 0;
}
