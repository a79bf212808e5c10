//===- Cuda.cpp - the target of NVIDIA's GPUs -----------------------------===//
#include "compiler/target/cuda/Cuda.h"
#include "compiler/target/cuda/Device.h"
#include "compiler/target/cuda/EvenPadding.h"
#include "compiler/target/cuda/PlainKernel.h"
#include "compiler/target/fusion/Expand.h"
#include "compiler/target/fusion/ExpandAttention.h"
#include "compiler/target/fusion/WidenContractions.h"
#include "compiler/target/native/Codegen.h"
#include "dialects/pipe/Pipe.h"
#include "runtime/StageAbi.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Verifier.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;

/// Plans the tasks of `stage`, which it rewrites, and hands each to `use`.
static LogicalResult
planTasks(ModuleOp stage, bool fuse,
          llvm::function_ref<LogicalResult(fusion::TaskPlan &)> use) {
  fusion::PlanOptions options;
  options.fuse = options.epilogues = fuse;
  options.evenRows = true;
  // A number computed again takes less time than one written and read.
  options.spills = false;
  // Libraries bring their own memory.
  options.scratch = [](Operation *) -> FailureOr<int64_t> { return 0; };
  for (auto func : stage.getOps<func::FuncOp>()) {
    evenPadding(func);
    fusion::expandAttention(func, hasAttentionKernel);
    // cuBLASLt and cuDNN multiply bf16. What is widened, gradients of weights
    // and f16, cuDNN may multiply in TF32, which holds both.
    fusion::widenContractions(func, fusion::Bf16Products::Rounded);
  }
  fusion::settleStash(stage);
  for (auto func : stage.getOps<func::FuncOp>()) {
    auto name = func->getAttrOfType<StringAttr>(pipe::kTaskAttr);
    if (!name)
      continue;
    fusion::TaskPlan plan;
    if (failed(fusion::planTask(func, name, options, plan)) ||
        failed(use(plan)))
      return failure();
  }
  return success();
}

LogicalResult cuda::emitStage(ModuleOp stage, StageEmitter &emitter, bool fuse,
                              target::StageCode &result) {
  if (failed(planTasks(stage, fuse, [&](fusion::TaskPlan &plan) {
        result.tasks.push_back({plan.name, plan.workspace});
        return emitter.emitTask(plan);
      })))
    return failure();
  result.kernelCount = emitter.kernelCount();
  return success();
}

template <typename T>
static void exportNumber(ModuleOp module, StringRef name, T value) {
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  Type type = b.getIntegerType(8 * sizeof(T));
  LLVM::GlobalOp::create(b, b.getUnknownLoc(), type, /*isConstant=*/true,
                         LLVM::Linkage::External, name,
                         b.getIntegerAttr(type, value));
}

static void exportBytes(ModuleOp module, const std::string &name,
                        const std::string &bytes) {
  emitBytes(module, name, bytes, /*isExported=*/true);
  exportNumber<int64_t>(module, name + "_bytes", bytes.size());
}

namespace {
class CudaTarget : public target::Target {
public:
  LogicalResult planTasks(ModuleOp stage, bool fuse,
                          llvm::function_ref<LogicalResult(fusion::TaskPlan &)>
                              use) const override {
    return ::planTasks(stage, fuse, use);
  }

  LogicalResult compileStage(ModuleOp stage,
                             const target::TargetOptions &options,
                             StringRef sharedObject,
                             target::StageCode &result) const override {
    registerDeviceDialects(*stage.getContext());
    OwningOpRef<ModuleOp> source = stage.clone();
    OwningOpRef<ModuleOp> host = ModuleOp::create(stage.getLoc());
    OwningOpRef<ModuleOp> device = ModuleOp::create(stage.getLoc());
    CallList calls;
    StageEmitter emitter(*host, *device, options.keepCalls ? &calls : nullptr);
    if (failed(emitStage(*source, emitter, options.fuse, result)))
      return failure();
    if (options.keepCalls) {
      result.calls = calls.text();
      return success();
    }
    emitHelpers(*device);
    if (failed(mlir::verify(*device)) || failed(mlir::verify(*host)))
      return failure();
    if (options.keepKernels) {
      llvm::raw_string_ostream os(result.kernels);
      device->print(os);
      host->print(os);
    }
    if (failed(compileDevice(*device, *host, options, result)))
      return failure();
    exportBytes(*host, "pipec_literals", emitter.literals());
    exportNumber<int32_t>(*host, "pipec_kernel_count", emitter.kernelCount());
    exportNumber<int32_t>(*host, "pipec_abi_version", PIPEC_ABI_VERSION);
    auto machine = native::createMachine(host->getLoc(), options.cpu);
    if (failed(machine))
      return failure();
    return native::compileShared(*host, **machine, options, nullptr,
                                 sharedObject, result);
  }

private:
  static LogicalResult compileDevice(ModuleOp device, ModuleOp host,
                                     const target::TargetOptions &options,
                                     target::StageCode &result) {
    Toolkit toolkit = Toolkit::find();
    FailureOr<std::string> ptx =
        compileToPtx(device, toolkit, options.gpuCode > options.GpuLlvm,
                     options.keepLlvm ? &result.llvm : nullptr);
    if (failed(ptx))
      return failure();
    exportBytes(host, "pipec_ptx", *ptx + '\0');
    for (int chip : kChips) {
      if (toolkit.ptxas.empty() || options.gpuCode != options.GpuMachine)
        break;
      FailureOr<std::string> cubin = cuda::assemble(
          host.getLoc(), *ptx, chip, toolkit, result.assemblerReport);
      if (failed(cubin))
        return failure();
      exportBytes(host, "pipec_cubin_" + std::to_string(chip), *cubin);
      result.cubins[chip] = std::move(*cubin);
    }
    result.ptx = std::move(*ptx);
    return success();
  }
};
} // namespace

namespace pipec::target {
std::unique_ptr<Target> createCudaTarget() {
  return std::make_unique<CudaTarget>();
}
} // namespace pipec::target
