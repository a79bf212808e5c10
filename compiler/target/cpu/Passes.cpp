//===- Passes.cpp - the CPU target's steps as passes ----------------------===//
#include "compiler/target/cpu/Passes.h"
#include "compiler/target/cpu/Cpu.h"
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace pipec::cpu {
#define GEN_PASS_DEF_CPUKERNELS
#include "compiler/target/cpu/Passes.h.inc"
} // namespace pipec::cpu

using namespace mlir;
using namespace pipec::cpu;

namespace {
struct CpuKernels : public pipec::cpu::impl::CpuKernelsBase<CpuKernels> {
  using CpuKernelsBase::CpuKernelsBase;
  void runOnOperation() override {
    ModuleOp stage = getOperation();
    OwningOpRef<ModuleOp> code = ModuleOp::create(stage.getLoc());
    pipec::fusion::Machine machine;
    machine.avx512 = avx512;
    pipec::target::StageCode result;
    if (failed(emitStage(stage, *code, fuse, machine, result)))
      return signalPassFailure();
    for (const pipec::target::TaskCode &task : result.tasks)
      code->lookupSymbol("pipec_" + task.name)
          ->setAttr("cpu.workspace",
                    Builder(stage).getI64IntegerAttr(task.workspaceBytes));
    stage.getBody()->clear();
    stage.getBody()->getOperations().splice(stage.getBody()->end(),
                                            code->getBody()->getOperations());
  }
};
} // namespace
