//===- EmitTask.h - a planned task as host and device code -----*- C++ -*-===//
#pragma once

#include "compiler/target/cuda/CallList.h"
#include "compiler/target/cuda/EmitKernel.h"
#include "compiler/target/fusion/StageData.h"

#include <set>

namespace pipec::cuda {

/// Collects the code of a stage in two modules: kernels for the device (equal
/// ones once), and for the host a function for each task and the descriptors of
/// its calls.
class StageEmitter {
public:
  /// Calls are added to `calls`, where there is one.
  StageEmitter(mlir::ModuleOp host, mlir::ModuleOp device,
               CallList *calls = nullptr)
      : host(host), device(device), calls(calls) {}

  mlir::LogicalResult emitTask(const fusion::TaskPlan &plan);
  int kernelCount() const { return kernels.count(); }
  /// What the stage's constants are, one after the other.
  const std::string &literals() const { return literalBytes; }

private:
  friend class TaskEmitter;
  std::string nextName() const {
    return "kernel" + std::to_string(kernels.count());
  }
  /// Offset of a constant in the literals.
  int64_t literal(mlir::ElementsAttr value);
  /// Symbol of a descriptor with these bytes.
  std::string descriptor(const std::string &bytes);

  mlir::ModuleOp host, device;
  CallList *calls;
  fusion::KernelTable kernels;
  llvm::DenseMap<mlir::Attribute, int64_t> literalOffsets;
  std::string literalBytes;
  std::map<std::string, std::string> descriptors; // bytes -> symbol
  /// Where a library may have left the numbers of rows of attention, by region
  /// and offset: gradients that find theirs there may be that library's.
  std::set<std::pair<int, int64_t>> libraryTops;
};

/// Adds the kernels that the runtime itself calls.
void emitHelpers(mlir::ModuleOp device);

/// The number in a kernel's name.
int64_t kernelNumber(mlir::func::FuncOp function);

/// A read-only global of these bytes, under an exported name or a private one.
void emitBytes(mlir::ModuleOp module, llvm::StringRef name,
               llvm::StringRef bytes, bool isExported);

} // namespace pipec::cuda
