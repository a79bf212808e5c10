//===- Cpu.cpp - the CPU target -------------------------------------------===//
#include "compiler/target/cpu/Cpu.h"
#include "compiler/target/cpu/EmitTask.h"
#include "compiler/target/fusion/Expand.h"
#include "compiler/target/fusion/ExpandAttention.h"
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

LogicalResult
cpu::planTasks(ModuleOp stage, bool fuse,
               llvm::function_ref<LogicalResult(TaskPlan &)> use) {
  PlanOptions options;
  options.fuse = fuse;
  options.scratch = libraryScratch;
  for (auto func : stage.getOps<func::FuncOp>()) {
    expandAttention(func);
    widenContractions(func, Bf16Products::Sums);
  }
  settleStash(stage);
  for (auto func : stage.getOps<func::FuncOp>()) {
    auto name = func->getAttrOfType<StringAttr>(pipe::kTaskAttr);
    if (!name)
      continue;
    TaskPlan plan;
    if (failed(planTask(func, name, options, plan)) || failed(use(plan)))
      return failure();
  }
  return success();
}

LogicalResult cpu::emitStage(ModuleOp stage, ModuleOp code, bool fuse,
                             const Machine &machine,
                             target::StageCode &result) {
  StageEmitter emitter(code, machine);
  if (failed(planTasks(stage, fuse, [&](TaskPlan &plan) {
        result.tasks.push_back({plan.name, plan.workspace});
        return emitter.emitTask(plan);
      })))
    return failure();
  emitter.finish();
  result.kernelCount = emitter.kernelCount();
  return success();
}

FailureOr<Machine> cpu::machineOf(Location loc, StringRef name) {
  auto machine = native::createMachine(loc, name);
  if (failed(machine))
    return failure();
  Machine features;
  features.avx512 = (*machine)->getMCSubtargetInfo()->checkFeatures("+avx512f");
  return features;
}

namespace {
class CpuTarget : public target::Target {
public:
  LogicalResult planTasks(ModuleOp stage, bool fuse,
                          llvm::function_ref<LogicalResult(fusion::TaskPlan &)>
                              use) const override {
    return cpu::planTasks(stage, fuse, use);
  }

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
