//===- Cpu.cpp - the CPU target -------------------------------------------===//
#include "compiler/target/cpu/Cpu.h"
#include "compiler/target/cpu/EmitTask.h"
#include "compiler/target/fusion/Expand.h"
#include "compiler/target/fusion/WidenContractions.h"
#include "compiler/target/native/Codegen.h"
#include "dialects/pipe/Pipe.h"

#include "mlir/IR/Verifier.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cpu;
using namespace pipec::fusion;

LogicalResult cpu::emitStage(ModuleOp stage, ModuleOp code, bool fuse,
                             const Machine &machine,
                             target::StageCode &result) {
  PlanOptions options;
  options.fuse = fuse;
  options.scratch = libraryScratch;
  for (auto func : stage.getOps<func::FuncOp>())
    widenContractions(func, Bf16Products::Sums);
  settleStash(stage);
  StageEmitter emitter(code, machine);
  for (auto func : stage.getOps<func::FuncOp>()) {
    auto name = func->getAttrOfType<StringAttr>(pipe::kTaskAttr);
    if (!name)
      continue;
    TaskPlan plan;
    if (failed(planTask(func, name, options, plan)) ||
        failed(emitter.emitTask(plan)))
      return failure();
    result.tasks.push_back({plan.name, plan.workspace});
  }
  emitter.finish();
  result.kernelCount = emitter.kernelCount();
  return success();
}

namespace {
class CpuTarget : public target::Target {
public:
  LogicalResult compileStage(ModuleOp stage,
                             const target::TargetOptions &options,
                             StringRef sharedObject,
                             target::StageCode &result) const override {
    native::registerLoweringDialects(*stage.getContext());
    auto machine = native::createMachine(stage.getLoc(), options.cpu);
    if (failed(machine))
      return failure();
    Machine features;
    features.avx512 =
        (*machine)->getMCSubtargetInfo()->checkFeatures("+avx512f");
    OwningOpRef<ModuleOp> source = stage.clone();
    OwningOpRef<ModuleOp> code = ModuleOp::create(stage.getLoc());
    if (failed(emitStage(*source, *code, options.fuse, features, result)))
      return failure();
    if (options.keepKernels) {
      llvm::raw_string_ostream os(result.kernels);
      code->print(os);
    }
    if (failed(mlir::verify(*code)))
      return failure();
    return native::compileShared(*code, **machine, options,
                                 options.keepLlvm ? &result.llvm : nullptr,
                                 sharedObject, result);
  }
};
} // namespace

namespace pipec::target {
std::unique_ptr<Target> createCpuTarget() {
  return std::make_unique<CpuTarget>();
}
} // namespace pipec::target
