//===- Passes.cpp - the CUDA target's steps as passes ---------------------===//
#include "compiler/target/cuda/Passes.h"
#include "compiler/target/cuda/AttentionStash.h"
#include "compiler/target/cuda/Cuda.h"
#include "compiler/target/cuda/EvenPadding.h"
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace pipec::cuda {
#define GEN_PASS_DEF_CUDAATTENTIONSTASH
#define GEN_PASS_DEF_CUDAEVENPADDING
#define GEN_PASS_DEF_CUDAKERNELS
#include "compiler/target/cuda/Passes.h.inc"
} // namespace pipec::cuda

using namespace mlir;
using namespace pipec::cuda;

namespace {
struct CudaAttentionStash
    : public pipec::cuda::impl::CudaAttentionStashBase<CudaAttentionStash> {
  void runOnOperation() override { settleAttention(getOperation()); }
};

struct CudaEvenPadding
    : public pipec::cuda::impl::CudaEvenPaddingBase<CudaEvenPadding> {
  void runOnOperation() override { evenPadding(getOperation()); }
};

struct CudaKernels : public pipec::cuda::impl::CudaKernelsBase<CudaKernels> {
  using CudaKernelsBase::CudaKernelsBase;
  void runOnOperation() override {
    ModuleOp stage = getOperation();
    OwningOpRef<ModuleOp> device = ModuleOp::create(stage.getLoc(), "device");
    OwningOpRef<ModuleOp> host = ModuleOp::create(stage.getLoc(), "host");
    StageEmitter emitter(*host, *device);
    pipec::target::StageCode result;
    if (failed(emitStage(stage, emitter, fuse, result)))
      return signalPassFailure();
    for (const pipec::target::TaskCode &task : result.tasks)
      host->lookupSymbol("pipec_" + task.name)
          ->setAttr("cuda.workspace",
                    Builder(stage).getI64IntegerAttr(task.workspaceBytes));
    stage.getBody()->clear();
    stage.getBody()->push_back(device.release());
    stage.getBody()->push_back(host.release());
  }
};
} // namespace
