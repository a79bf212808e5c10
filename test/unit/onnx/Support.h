//===- Support.h - shared by the importer's tests ---------------*- C++ -*-===//

#pragma once

#include "compiler/onnx/Import.h"
#include "compiler/onnx/Literals.h"
#include "compiler/onnx/Npy.h"
#include "compiler/onnx/Reader.h"
#include "dialects/nn/eval/Evaluate.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

namespace pipec::onnx::test {

inline std::string modelsFolder() { return PIPEC_TEST_MODELS; }

inline std::string readFile(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

/// A folder that goes away with the test.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "pipec-onnx-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::string file(const std::string &name) const { return path + "/" + name; }
  void write(const std::string &name, const std::string &bytes) const {
    std::filesystem::create_directories(
        std::filesystem::path(file(name)).parent_path());
    std::ofstream(file(name), std::ios::binary) << bytes;
  }
  std::string path;
};

/// One import and what came of it.
struct Imported {
  explicit Imported(const std::string &path, const ImportOptions &options = {})
      : context(mlir::MLIRContext::Threading::DISABLED) {
    module = importModel(path, options, context, diagnostics, report);
  }
  Imported(const std::string &bytes, const std::string &folder,
           const ImportOptions &options)
      : context(mlir::MLIRContext::Threading::DISABLED) {
    module = importModel(bytes, "test.onnx", folder, options, context,
                         diagnostics, report);
  }
  std::string text() const { return diagnostics.text("test.onnx"); }

  mlir::MLIRContext context;
  Diagnostics diagnostics;
  ImportReport report;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

} // namespace pipec::onnx::test
