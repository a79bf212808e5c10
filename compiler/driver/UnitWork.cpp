//===- UnitWork.cpp - what a call of generated code has to do -------------===//
#include "compiler/driver/UnitWork.h"

#include "compiler/driver/RoutineWork.h"
#include "compiler/target/cpu/CountKernel.h"
#include "compiler/target/fusion/LibraryCall.h"
#include "dialects/nn/NN.h"

using namespace mlir;
using namespace pipec;

namespace {

template <typename Descriptor> Descriptor read(const std::string &bytes) {
  Descriptor d;
  memcpy(&d, bytes.data(), sizeof d);
  return d;
}

FailureOr<plan::KernelWork> kernelOf(const fusion::KernelPlan &plan,
                                     ModuleOp scratch,
                                     const fusion::Machine &machine) {
  FailureOr<cpu::KernelCode> code =
      cpu::emitKernel(scratch, "counted", plan, machine);
  if (failed(code))
    return failure();
  plan::KernelWork work;
  if (code->count > 0)
    work = plan::generatedWork(cpu::countKernel(*code, plan),
                               code->count > code->grain);
  code->function.erase();
  return work;
}

FailureOr<plan::KernelWork> libraryOf(const fusion::Unit &unit,
                                      const plan::ProductTile &tile) {
  FailureOr<fusion::LibraryCall> call =
      fusion::libraryCall(unit.op, unit.operands, unit.accumulate);
  if (failed(call))
    return failure();
  const std::string &bytes = call->descriptor;
  if (isa<nn::MatmulOp>(unit.op))
    return routineWork(read<PipecMatmul>(bytes), tile);
  if (isa<nn::ConvOp, nn::ConvGradInputOp, nn::ConvGradWeightOp>(unit.op))
    return routineWork(read<PipecConv>(bytes), call->prepareKind, tile);
  if (isa<nn::MaxPoolOp>(unit.op))
    return routineWork(read<PipecPool>(bytes), "max-pool", tile);
  if (isa<nn::MaxPoolGradOp>(unit.op))
    return routineWork(read<PipecPool>(bytes), "max-pool-grad", tile);
  if (isa<nn::AvgPoolOp>(unit.op))
    return routineWork(read<PipecPool>(bytes), "avg-pool", tile);
  if (isa<nn::AvgPoolGradOp>(unit.op))
    return routineWork(read<PipecPool>(bytes), "avg-pool-grad", tile);
  const int64_t cleared =
      call->clears ? nn::byteSize(unit.op->getResult(0).getType()) : 0;
  return routineWork(read<PipecGather>(bytes), isa<nn::ScatterAddOp>(unit.op),
                     cleared);
}

} // namespace

FailureOr<plan::KernelWork> pipec::unitWork(const fusion::Unit &unit,
                                            ModuleOp scratch,
                                            const fusion::Machine &machine,
                                            const plan::ProductTile &tile) {
  switch (unit.kind) {
  case fusion::Unit::Kernel:
    return kernelOf(unit.kernel, scratch, machine);
  case fusion::Unit::Library:
    return libraryOf(unit, tile);
  case fusion::Unit::Copy:
    return routineWork(read<PipecCopy>(fusion::copyDescriptor(
        unit.shape, unit.from, unit.to, fusion::elementBytes(unit.element))));
  case fusion::Unit::Scalar:
    return plan::KernelWork();
  }
  llvm_unreachable("a kind of unit");
}
