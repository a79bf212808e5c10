//===- EmitTask.h - a planned task as code ---------------------*- C++ -*-===//
#pragma once

#include "compiler/target/cpu/EmitKernel.h"
#include "compiler/target/fusion/LibraryCall.h"
#include "compiler/target/fusion/StageData.h"

namespace pipec::cpu {

/// Collects the code of a stage in one module: kernels (equal ones once),
/// constants and descriptors, a function for each task, `pipec_load`.
class StageEmitter {
public:
  StageEmitter(mlir::ModuleOp module, const fusion::Machine &machine)
      : module(module), machine(machine) {}

  mlir::LogicalResult emitTask(const fusion::TaskPlan &plan);
  /// The functions and data every stage has, after the last task.
  void finish();
  int kernelCount() const { return kernels.count(); }

private:
  mlir::FailureOr<KernelCode> kernel(const fusion::KernelPlan &plan,
                                     llvm::StringRef task);
  std::string constant(mlir::ElementsAttr value);
  std::string descriptor(const fusion::LibraryCall &call);
  friend class TaskEmitter;

  mlir::ModuleOp module;
  fusion::Machine machine;
  fusion::KernelTable kernels;
  llvm::DenseMap<mlir::Attribute, std::string> constants;
  std::map<std::string, std::string> descriptors; // bytes -> symbol
  /// Descriptor symbols that loading prepares, with the kind of call.
  std::vector<std::pair<std::string, int32_t>> prepared;
};

} // namespace pipec::cpu
