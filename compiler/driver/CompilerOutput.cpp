//===- CompilerOutput.cpp - from tasks to a plan, code or a summary -------===//
#include "compiler/driver/Alternatives.h"
#include "compiler/driver/Compiler.h"

#include "compiler/driver/CompileFiles.h"
#include "compiler/driver/CostModel.h"
#include "compiler/driver/DiagnosticCollector.h"
#include "compiler/driver/EmittedCode.h"
#include "compiler/driver/Extras.h"
#include "compiler/driver/FoldedTensors.h"
#include "compiler/driver/LossSettings.h"
#include "compiler/driver/ShardedSummary.h"
#include "compiler/plan/PeakBytes.h"
#include "compiler/plan/PlanDot.h"
#include "compiler/plan/WhatIf.h"
#include "compiler/target/Target.h"
#include "dialects/pipe/Pipe.h"
#include "runtime/program/PlanCheck.h"
#include "support/OutputFile.h"
#include "support/Phase.h"
#include "support/UnknownName.h"

#include <filesystem>
#include <iostream>

using namespace mlir;

namespace pipec {

int Compiler::emitCode(const std::vector<std::string> &stages) {
  const std::vector<std::string> files =
      writeCode(options.emit, options.output, stages);
  if (!files.empty() && !options.quiet && options.format != "json")
    std::cout << "written    " << listed(files) << "\n";
  return 0;
}

/// What the fullest device holds, and what it may.
OverLimit Compiler::fullest(const plan::Plan &plan) const {
  const Fullest device = fullestDevice(plan);
  OverLimit most{device.bytes, deviceLimit(options, facts.topology),
                 device.rank, decision.slices, plan.predicted.step_s};
  most.planned = plan::peakBytes(decision.result.stages);
  most.recomputesAll = decision.recomputesAll();
  return most;
}

plan::Plan Compiler::planFor(const std::vector<int64_t> &workspace) {
  const Phase checking("checking the plan");
  const schedule::Schedule order = schedule::unrollSlices(decision.schedule);
  PlanInputs inputs{*original,          *module, options,
                    *decision.strategy, order,   decision.request,
                    decision.result};
  inputs.slices = decision.slices;
  inputs.workspaceBytes = workspace;
  inputs.purpose = purpose;
  inputs.opset = importReport.opset;
  for (const onnx::InputReport &input : importReport.inputs)
    inputs.modelInputs.push_back(input.name);
  for (const onnx::InputReport &output : importReport.outputs)
    inputs.modelOutputs.push_back(output.name);
  inputs.optimizer = options.optimizer;
  inputs.optimizerSettings = settings;
  // An order that sends long before it takes needs room for what is under way:
  // as much as it takes for the programs to end.
  for (;; inputs.spareSlots = std::max(1, 2 * inputs.spareSlots))
    try {
      plan::Plan plan = buildPlan(inputs);
      plan::checkExecution(plan);
      const OverLimit most = fullest(plan);
      // An evaluation is on the devices of the training.
      if (purpose != Purpose::Evaluate && most.bytes > most.limit)
        throw most;
      return plan;
    } catch (const Failure &failure) {
      if (failure.code == Exit::NoFit ||
          inputs.spareSlots >= options.microbatches)
        throw;
    }
}

static int64_t stagesIn(ModuleOp module) {
  auto stages = module.getOps<ModuleOp>();
  return std::distance(stages.begin(), stages.end());
}

/// The machine code of the chip that was asked for.
std::string Compiler::cubinOf(const target::StageCode &code) {
  const std::string &name = options.targetGpu;
  const int chip = name.empty() ? 90 : std::stoi(name.substr(3)); // sm_80
  auto found = code.cubins.find(chip);
  if (found == code.cubins.end())
    throw Failure(Exit::Unavailable,
                  "no ptxas on this machine, which makes machine code of PTX; "
                  "run tools/setup.sh --cuda, or set CUDA_HOME to a toolkit");
  return found->second;
}

/// Code of all stages: shared objects in `folder`, or what --emit asks for.
bool Compiler::compileStages(PlanFolder *folder,
                             std::vector<int64_t> &workspace,
                             std::vector<std::string> &codes) {
  if (folder)
    folder->writeFile("stages/.keep", "");
  workspace.assign(decision.result.stages.size() * decision.slices, 0);
  target::TargetOptions targetOptions;
  targetOptions.cpu = options.targetCpu;
  targetOptions.keepKernels = options.emit == "kernels";
  targetOptions.keepCalls = options.emit == "calls";
  targetOptions.keepLlvm = options.emit == "llvm";
  targetOptions.keepObject = options.emit == "object";
  if (options.emit == "kernels" || options.emit == "llvm")
    targetOptions.gpuCode = targetOptions.GpuLlvm;
  else if (options.emit == "ptx")
    targetOptions.gpuCode = targetOptions.GpuPtx;
  codes.resize(workspace.size());
  checkCodeFiles(options.emit, options.output, workspace.size(), inputs);
  Phase compiling("compiling stage", stagesIn(*module));
  for (auto stage : module->getOps<ModuleOp>()) {
    compiling.next();
    int64_t id = stage->getAttrOfType<IntegerAttr>(pipe::kStageAttr).getInt();
    target::StageCode code;
    std::string path = folder ? folder->temporary() + "/stages/stage" +
                                    std::to_string(id) + ".so"
                              : "";
    if (failed(target::compileStage(forGpus() ? "cuda" : "cpu", stage,
                                    targetOptions, path, code)))
      return false;
    for (const target::TaskCode &task : code.tasks)
      workspace[id] = std::max(workspace[id], task.workspaceBytes);
    codes[id] = code.kernels + code.calls + code.llvm + code.object;
    if (options.emit == "ptx")
      codes[id] += code.ptx;
    if (options.emit == "cubin")
      codes[id] += cubinOf(code);
    if ((folder || options.emit == "object") && forGpus() &&
        code.cubins.empty() && purpose != Purpose::Evaluate)
      diagnostics.note("no ptxas on this machine: the code is PTX alone, which "
                       "devices translate when it is loaded; tools/setup.sh "
                       "--cuda installs it");
  }
  if (folder)
    std::filesystem::remove(folder->temporary() + "/stages/.keep");
  return true;
}

int Compiler::generate() {
  if (!options.emit.empty()) {
    std::vector<std::string> codes;
    std::vector<int64_t> workspace;
    if (!compileStages(nullptr, workspace, codes))
      return report();
    sayNotes();
    return emitCode(codes);
  }
  PlanFolder folder(outputFolder(options));
  try {
    return generate(folder);
  } catch (const Failure &failure) {
    folder.rethrow(failure);
  }
}

int Compiler::generate(PlanFolder &folder) {
  std::vector<std::string> none;
  std::vector<int64_t> workspace;
  if (!findWorkspace(workspace))
    return report();
  planFor(workspace); // too large: known before code is made
  if (!compileStages(&folder, workspace, none))
    return report();
  plan::Plan plan = planFor(workspace);
  {
    const Phase writing("writing the plan");
    folder.writeFolded(plan, foldedTensors(*original));
    folder.addFiles(plan, options.selfContained);
    folder.addStages(plan);
    plan::checkPlan(plan); // a plan that cannot run is never written
    folder.writeFile("plan.json", plan::toJson(plan));
  }
  if (purpose == Purpose::Train) {
    CompileOptions evaluated = options;
    evaluated.memoryMargin = 0;
    if (!evaluated.dumpDirectory.empty())
      evaluated.dumpDirectory += std::string("/") + plan::kEvaluationFolder;
    if (plan.strategy.update == "round") // then a step is one microbatch
      evaluated.microbatches = 4 * static_cast<int>(plan.ranks.size());
    Compiler evaluation(evaluated, Purpose::Evaluate, context);
    if (!evaluation.evaluate(plan, folder))
      return evaluation.report();
  }
  writeExtras(plan, decision.schedule, folder.temporary());
  const std::vector<plan::WhatIfRow> rows =
      whatIf(ownPlan(plan)); // may still fail
  folder.commit();
  showPlan(plan, rows);
  if (!options.quiet && options.format == "text")
    printNext(plan, outputFolder(options));
  return 0;
}

/// As planLikeCompile() does it, and where a limit binds as a compile does. Of
/// other devices and of operators that several divide there is the estimate
/// alone, and of the many strategies of a table those that it refuses are not
/// tried.
plan::Replanned Compiler::planUnder(const CompileOptions &asked,
                                    const plan::Topology &topology) {
  ModelFacts others = memory->model->facts;
  const bool counts = memory->counted && asked.memoryLimit > 0 && isPlanned() &&
                      asked.tensorParallel == "1" &&
                      topology == others.topology;
  const bool isTyped = asked.strategy == memory->asked.strategy;
  others.topology = topology;
  try {
    plan::Replanned found =
        planLikeCompile(asked, memory->model->graph, others);
    if (!counts || !(found.isClose || found.result.limitBinds))
      return found;
  } catch (const Failure &failure) {
    if (!counts || !isTyped || failure.code != Exit::NoFit)
      throw;
  }
  return memory->counted(asked);
}

/// The plan that is there, with what it takes where its code was planned.
plan::Replanned Compiler::ownPlan(const plan::Plan &plan) const {
  plan::Replanned own = decision.replanned(options);
  own.counted = isPlanned() ? fullestDevice(plan).bytes : 0;
  return own;
}

std::vector<plan::WhatIfRow> Compiler::whatIf(const plan::Replanned &own) {
  if (options.whatIf.empty())
    return {};
  const Phase comparing("what if");
  plan::PlanRequest asked = decision.request;
  if (asked.trueLimit > 0)
    asked.memoryLimit = asked.trueLimit; // not what the search was given
  if (!memory || !memory->model || purpose != Purpose::Train)
    return plan::whatIf(asked, own, options.whatIf);
  const CompileOptions &typed = memory->asked; // not what was tried for them
  const ModelFacts &all = memory->model->facts;
  asked.topology = all.topology; // of which the plan may use a part
  std::vector<plan::Alternative> strategies;
  if (plan::comparesStrategies(typed.whatIf))
    strategies =
        alternatives(typed, own.strategy, [&](const CompileOptions &other) {
          return planUnder(other, all.topology);
        });
  return plan::whatIf(asked, own, typed.whatIf, strategies,
                      [&](const plan::PlanRequest &changed) {
                        return planUnder(optionsUnder(typed, all, changed),
                                         changed.topology);
                      });
}

/// A plan of groups of devices, which is not lowered.
int Compiler::printSharded() {
  if (!options.dot.empty())
    writeFile(options.dot, planDot(decision.request.graph, decision.result));
  const plan::Replanned own = decision.replanned(options);
  const std::vector<plan::WhatIfRow> rows = whatIf(own);
  sayNotes();
  if (options.format == "json")
    std::cout << shardedJson(decision.request, decision.result, rows);
  else if (!options.quiet)
    std::cout << shardedSummary(options, decision.request, decision.result,
                                rows);
  else if (!rows.empty())
    std::cout << plan::whatIfTable(own, rows);
  return 0;
}

/// The summary, and what was asked for beside it.
void Compiler::showPlan(const plan::Plan &plan,
                        const std::vector<plan::WhatIfRow> &rows) {
  if (!options.dot.empty())
    writeFile(options.dot, planDot(decision.request.graph, decision.result));
  sayNotes();
  if (memory && options.format == "json")
    for (const std::string &note : memory->notes)
      std::cerr << noteLine(note);
  const plan::Replanned own = ownPlan(plan);
  if (!options.quiet || options.format == "json")
    printPlan(plan, options.format == "json", &own, rows);
  else if (!rows.empty())
    std::cout << plan::whatIfTable(own, rows);
}

/// The plan without code.
int Compiler::printDryRun() {
  std::vector<int64_t> workspace;
  if (!lowerToTasks() || !findWorkspace(workspace))
    return report();
  const plan::Plan plan = planFor(workspace);
  showPlan(plan, whatIf(ownPlan(plan)));
  return 0;
}

bool Compiler::isPlanned() const {
  return decision.request.graph.nodes.size() <= kMostPlanned;
}

/// What the code of each stage will work in; of a large model the planner's
/// estimate.
bool Compiler::findWorkspace(std::vector<int64_t> &workspace) {
  workspace.clear();
  for (int piece = 0; piece < decision.slices; ++piece)
    for (const plan::StagePlan &stage : decision.result.stages)
      workspace.push_back(stage.memory.workspace / decision.slices);
  if (!isPlanned())
    return true;
  Phase sizing("sizing stage", stagesIn(*module));
  for (auto stage : module->getOps<ModuleOp>()) {
    sizing.next();
    const auto number = stage->getAttrOfType<IntegerAttr>(pipe::kStageAttr);
    std::vector<target::TaskCode> tasks;
    if (failed(target::planStage(forGpus() ? "cuda" : "cpu", stage, {}, tasks)))
      return false;
    int64_t &bytes = workspace[number.getInt()] = 0;
    for (const target::TaskCode &task : tasks)
      bytes = std::max(bytes, task.workspaceBytes);
  }
  return true;
}

/// The plan that evaluates what `training` trains: on as many ranks.
bool Compiler::evaluate(const plan::Plan &training, const PlanFolder &outer) {
  const Phase evaluation("evaluation");
  loss = lossChoice(options);
  loss.perSample = plan::kLossOfSamples;
  facts.topology = topologyOf(options);
  DiagnosticCollector collector(context, diagnostics);
  if (!import() || !makeDecision(static_cast<int>(training.ranks.size())) ||
      !lowerToTasks())
    return false;
  PlanFolder folder(outer, plan::kEvaluationFolder);
  std::vector<std::string> none;
  std::vector<int64_t> workspace;
  if (!compileStages(&folder, workspace, none))
    return false;
  plan::Plan plan = planFor(workspace);
  folder.writeFolded(plan, foldedTensors(*original));
  folder.shareFiles(plan, training);
  folder.addStages(plan);
  plan::checkPlan(plan);
  folder.writeFile("plan.json", plan::toJson(plan));
  return true;
}

} // namespace pipec
