//===- TaskCosts.cpp - times of the code that a model becomes -------------===//
#include "compiler/driver/TaskCosts.h"

#include "compiler/driver/OpKinds.h"
#include "compiler/driver/OperandUses.h"
#include "compiler/driver/Repetitions.h"
#include "compiler/driver/UnitWork.h"
#include "compiler/target/cpu/Cpu.h"
#include "compiler/target/fusion/Traffic.h"
#include "compiler/target/native/Codegen.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Pipelines.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace pipec;

bool pipec::knowsCalls(const plan::DeviceModel &device) {
  return device.kernels.count("generated") > 0;
}

namespace {

/// Gives what a task costs to the nodes that it computes.
class TaskSharer {
public:
  explicit TaskSharer(TaskCosts &costs) : costs(costs) {}

  /// `secondsOf` each unit, by its number.
  LogicalResult
  run(const fusion::TaskPlan &task,
      llvm::function_ref<FailureOr<double>(size_t unit)> secondsOf) {
    double *step = task.name == "update"  ? &costs.update
                   : task.name == "track" ? &costs.track
                                          : nullptr;
    const TaskCosts before = costs;
    double unowned = 0;
    for (auto [number, unit] : llvm::enumerate(task.units)) {
      FailureOr<double> seconds = secondsOf(number);
      if (failed(seconds))
        return failure();
      if (step)
        *step += *seconds;
      else if (!share(unit, *seconds))
        unowned += *seconds;
    }
    if (unowned > 0)
      spread(before, task.name == "forward", unowned);
    return success();
  }

private:
  /// How much of a call an op is.
  static double weightOf(Operation *op) {
    double elements = 1;
    for (Value operand : op->getOperands())
      elements = std::max(
          elements,
          static_cast<double>(nn::tensorType(operand).getNumElements()));
    const bool dear = isa<nn::ExpOp, nn::LogOp, nn::Log1pOp, nn::TanhOp,
                          nn::ErfOp, nn::SigmoidOp, nn::SinOp, nn::CosOp>(op);
    return elements * (dear ? 8 : 1);
  }

  /// Among the nodes of the unit's ops; false when it has none.
  bool share(const fusion::Unit &unit, double seconds) {
    std::vector<std::pair<double *, double>> owners;
    double total = 0;
    auto add = [&](Operation *op) {
      auto node = op->getAttrOfType<IntegerAttr>(kNode);
      auto part = op->getAttrOfType<IntegerAttr>(kPart);
      if (part && !node && part.getInt() != static_cast<int>(Part::Forward))
        node = op->getAttrOfType<IntegerAttr>(kReader); // a source's gradient
      if (!node || !part)
        return;
      owners.push_back(
          {&costs.nodes[node.getInt()][part.getInt()], weightOf(op)});
      total += owners.back().second;
    };
    if (unit.kind == fusion::Unit::Kernel && unit.kernel.group)
      for (Operation *op : unit.kernel.group->ops)
        add(op);
    if (owners.empty() && unit.op)
      add(unit.op);
    for (auto [into, weight] : owners)
      *into += seconds * weight / total;
    return !owners.empty();
  }

  /// Copies that no op asks for alone: over all of the task.
  void spread(const TaskCosts &before, bool forward, double seconds) {
    double total = 0;
    auto each = [&](auto visit) {
      for (size_t i = 0; i < costs.nodes.size(); ++i)
        for (size_t part = forward ? 0 : 1; part < (forward ? 1u : 3u); ++part)
          visit(costs.nodes[i][part],
                costs.nodes[i][part] - before.nodes[i][part]);
    };
    each([&](double &, double own) { total += own; });
    if (total > 0)
      each([&](double &into, double own) { into += seconds * own / total; });
    else if (!costs.nodes.empty())
      costs.nodes.front()[forward ? 0 : 1] += seconds;
  }

  TaskCosts &costs;
};

/// By the device's rates, of what no routine's costs are known of.
double rooflineOf(Operation *op, const plan::DeviceModel &device) {
  auto costed = dyn_cast_or_null<nn::Costed>(op);
  return costed ? plan::opSeconds(device, costed.flops(), costed.bytesMoved(),
                                  kindOf(op), dtypeOf(op))
                : 0;
}

class TaskPricer {
public:
  TaskPricer(const plan::DeviceModel &device, const fusion::Machine &machine,
             ModuleOp scratch, double workingSet, double state,
             TaskCosts &costs)
      : device(device), machine(machine), scratch(scratch),
        workingSet(workingSet), state(state), costs(costs) {}

  LogicalResult run(fusion::TaskPlan &task) {
    const bool isStep = task.name == "update" || task.name == "track";
    const auto uses = operandUses(task);
    return TaskSharer(costs).run(task, [&](size_t number) -> FailureOr<double> {
      FailureOr<plan::KernelWork> work =
          unitWork(task.units[number], scratch, machine, device.tile);
      if (failed(work))
        return failure();
      const double away =
          plan::farShare(device, uses[number],
                         workingSet + (isStep ? state : 0), device.threads);
      if (!isStep)
        (task.name == "forward" ? costs.forwardShares : costs.backwardShares) |=
            plan::isShared(device, *work, away);
      if (work->kernel.empty())
        return 0;
      const auto known = plan::kernelSeconds(device, *work, away);
      return known ? *known : rooflineOf(task.units[number].op, device);
    });
  }

private:
  const plan::DeviceModel &device;
  const fusion::Machine &machine;
  ModuleOp scratch;
  const double workingSet, state; ///< bytes; the second the optimizer's
  TaskCosts &costs;
};

} // namespace

FailureOr<TaskCosts> pipec::taskCosts(ModuleOp module, size_t nodes,
                                      const OptimizerChoice &optimizer,
                                      const plan::DeviceModel &device,
                                      double workingSet, int caches,
                                      const MemoryChoice &memory) {
  PassManager passes(module.getContext());
  passes.addPass(createCanonicalizerPass());
  passes.addPass(createCSEPass());
  addSplitPhase(passes, false);
  addMemoryPhase(passes, memory);
  if (!optimizer.name.empty())
    addUpdatePhase(passes, optimizer.name, optimizer.settings);
  if (failed(passes.run(module)))
    return failure();
  native::registerLoweringDialects(*module.getContext());
  FailureOr<fusion::Machine> machine =
      cpu::machineOf(module.getLoc(), "native");
  if (failed(machine))
    return failure();
  TaskCosts costs;
  costs.nodes.assign(nodes, {0, 0, 0});
  OwningOpRef<ModuleOp> scratch = ModuleOp::create(module.getLoc());
  double state = 0; // of the optimizer
  for (auto stage : module.getOps<ModuleOp>())
    if (auto regions = stage->getAttrOfType<DictionaryAttr>("pipe.regions"))
      if (auto bytes = regions.getAs<IntegerAttr>("optimizer"))
        state += static_cast<double>(bytes.getInt()) / caches;
  TaskPricer pricer(device, *machine, *scratch, workingSet, state, costs);
  for (auto stage : module.getOps<ModuleOp>())
    if (stage->hasAttr(pipe::kStageAttr) &&
        failed(cpu::planTasks(stage, true, [&](fusion::TaskPlan &task) {
          return pricer.run(task);
        })))
      return failure();
  return costs;
}

LogicalResult pipec::addCallCosts(fusion::TaskPlan &task,
                                  const plan::DeviceModel &device,
                                  TaskCosts &costs) {
  return TaskSharer(costs).run(task, [&](size_t number) -> FailureOr<double> {
    const fusion::Unit &unit = task.units[number];
    if (unit.isDeferred && unit.kind == fusion::Unit::Kernel)
      return 0; // a library does it on its way
    const fusion::Traffic traffic = fusion::trafficOf(task, unit);
    double flops = 0;
    plan::OpKind kind = plan::OpKind::Elementwise;
    plan::DType dtype = plan::DType::F32;
    auto costed = dyn_cast_or_null<nn::Costed>(unit.op);
    if (unit.kind == fusion::Unit::Library && costed &&
        costed.isContraction()) {
      flops = costed.flops();
      kind = kindOf(unit.op), dtype = dtypeOf(unit.op);
    }
    return plan::opSeconds(device, flops,
                           static_cast<double>(traffic.read + traffic.written),
                           kind, dtype);
  });
}
