//===- Compile.cpp - `pipec MODEL.onnx` -----------------------------------===//
#include "compiler/driver/Compile.h"

#include "compiler/driver/CompileOptions.h"
#include "compiler/driver/CostModel.h"
#include "compiler/driver/EmittedCode.h"
#include "compiler/driver/Extras.h"
#include "compiler/driver/FoldedTensors.h"
#include "compiler/driver/LossSettings.h"
#include "compiler/driver/PlanBuilder.h"
#include "compiler/driver/PlanFolder.h"
#include "compiler/driver/Planning.h"
#include "compiler/driver/WithinLimit.h"
#include "compiler/onnx/Import.h"
#include "compiler/plan/PeakBytes.h"
#include "compiler/plan/PlanDot.h"
#include "compiler/plan/WhatIf.h"
#include "compiler/strategy/Strategy.h"
#include "compiler/target/Target.h"
#include "compiler/target/native/Processor.h"
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Optimizer.h"
#include "passes/Pipelines.h"
#include "passes/SliceSequence.h"
#include "report/Format.h"
#include "runtime/program/PlanCheck.h"
#include "support/Diagnostics.h"
#include "support/OutputFile.h"
#include "support/UnknownName.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"

#include <filesystem>
#include <iostream>
#include <utility>

using namespace mlir;

namespace pipec {
namespace {

/// MLIR errors become entries of the report, with the ONNX node they are about.
class DiagnosticCollector {
public:
  DiagnosticCollector(MLIRContext &context, Diagnostics &out)
      : handler(&context, [&out](mlir::Diagnostic &d) {
          if (d.getSeverity() != DiagnosticSeverity::Error)
            return success();
          out.add(problemOf(d));
          return success();
        }) {}

private:
  /// "cause; remedy" at a node's location.
  static Diagnostic problemOf(mlir::Diagnostic &d) {
    Diagnostic problem;
    std::string text = d.str();
    size_t split = text.find("; ");
    problem.cause = text.substr(0, split);
    if (split != std::string::npos)
      problem.remedy = text.substr(split + 2);
    if (auto name = dyn_cast<NameLoc>(d.getLocation())) {
      problem.node = name.getName().str();
      if (auto line = dyn_cast<FileLineColLoc>(name.getChildLoc());
          line && line.getLine() > 0)
        problem.location =
            line.getFilename().str() + ":" + std::to_string(line.getLine());
    }
    return problem;
  }

  ScopedDiagnosticHandler handler;
};

/// A number that reads back as the same double.
std::string roundTrip(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

/// Models of more operators: their code is not planned ahead of being made.
constexpr size_t kMostPlanned = 6000;

/// The last plan that was searched for, under options that decide about it: the
/// one that was tried last under a limit is made.
struct LastDecision {
  CompileOptions options;
  Decision decision;

  /// Without what only says what is shown.
  static CompileOptions deciding(CompileOptions options) {
    options.quiet = options.again = false;
    options.dumpDirectory.clear();
    return options;
  }
};

/// A model that was read, and what it costs: many plans of one are tried under
/// a limit.
struct KnownModel {
  CompileOptions options; ///< that decide about it
  OwningOpRef<ModuleOp> module;
  onnx::ImportReport report;
  plan::CostGraph graph;
  ModelFacts facts;

  /// Whether a plan may compute all activations again.
  static bool recomputes(const CompileOptions &options) {
    const strategy::StrategyRow *row = strategy::findStrategy(options.strategy);
    return (options.recompute != "none" && options.recompute != "selective") ||
           (row && row->recompute);
  }

  static CompileOptions deciding(CompileOptions options) {
    options = LastDecision::deciding(options);
    const bool isCut = !options.forwardOnly && slicesAsked(options) > 1;
    options.recompute = std::string(options.recompute == "none" ? "none" : "") +
                        (recomputes(options) ? " again" : "");
    options.strategy = isCut ? "cut" : "";
    options.slices = 0;
    options.stages = options.replicas = options.stageFile = options.planner =
        options.whatIf = "";
    options.memoryLimit = options.memoryMargin = 0;
    options.ofAuto = options.quick = options.withoutWorkspace = false;
    return options;
  }
};

/// What one compilation leaves to the next of the same model.
struct Memory {
  std::optional<LastDecision> last;
  std::optional<KnownModel> model;
  std::string batch; ///< the dimension's name
};

class Compiler {
public:
  Compiler(const CompileOptions &options, Purpose purpose, MLIRContext &context,
           Memory *memory = nullptr)
      : options(options), purpose(purpose), context(context), memory(memory) {}

  int run() {
    if (purpose == Purpose::Train)
      checkOptimizer();
    if (purpose != Purpose::Infer)
      loss = lossChoice(options);
    facts.topology = topologyOf(options);
    checkEmit();
    target::checkProcessor(options.targetCpu);
    if (!options.dot.empty())
      expectWritable(options.dot);
    DiagnosticCollector collector(context, diagnostics);
    if (!import())
      return report();
    noteFewMicrobatches();
    noteLimitAboveDevice();
    if (options.format != "json") // there they are part of a report
      sayNotes();
    if (options.emit == "nn")
      return emitText(*module);
    if (!checkPieces() || !makeDecision(std::nullopt))
      return report();
    if (options.dryRun)
      return printDryRun();
    if (!lowerToTasks())
      return report();
    if (options.emit == "pipe")
      return emitText(*module);
    return generate();
  }

  /// The plan that would be made; -1 byte for a model too large to tell.
  Prospect prospect() {
    if (purpose == Purpose::Train)
      checkOptimizer();
    if (purpose != Purpose::Infer)
      loss = lossChoice(options);
    facts.topology = topologyOf(options);
    DiagnosticCollector collector(context, diagnostics);
    std::vector<int64_t> workspace;
    if (!import() || !checkPieces() || !makeDecision(std::nullopt))
      throw Failure(Exit::Usage, "no plan");
    if (!isPlanned())
      return {-1, 0};
    if (!lowerToTasks() || !findWorkspace(workspace))
      throw Failure(Exit::Usage, "no plan");
    return {fullest(planFor(workspace)).bytes, decision.result.stepSeconds,
            plan::peakBytes(decision.result.stages)};
  }

  /// The plan that evaluates what `training` trains: on as many ranks.
  bool evaluate(const plan::Plan &training, const PlanFolder &outer) {
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

  int report() {
    if (options.quiet || options.again)
      diagnostics.takeNotes();
    std::cerr << (options.format == "json" ? diagnostics.json(options.model)
                                           : diagnostics.text(options.model));
    return static_cast<int>(diagnostics.exitCode());
  }

private:
  void sayNotes() {
    const std::string notes = diagnostics.takeNotes();
    if (!options.quiet && !options.again)
      std::cerr << notes;
  }

  //===--------------------------------------------------------------------===//
  // Options that need tables
  //===--------------------------------------------------------------------===//

  void checkOptimizer() {
    const OptimizerRow *row = findOptimizer(options.optimizer);
    if (!row) {
      std::vector<std::string> known;
      for (const OptimizerRow &one : optimizerRows())
        known.emplace_back(one.name);
      throw Failure(Exit::Usage,
                    unknownName("optimizer", options.optimizer, known));
    }
    std::string error;
    if (!parseSettings(*row, options.optimizerSettings, settings, error))
      throw Failure(Exit::Usage, error);
    optimizer = row->optimizer;
  }

  /// Who leaves the option out may not know that a pipeline needs it.
  void noteFewMicrobatches() {
    const int devices = facts.topology.devices();
    if (purpose == Purpose::Train && !options.microbatchesGiven &&
        options.strategy != "pipedream" && devices > 1)
      diagnostics.note("a step is one microbatch, which " +
                       std::to_string(devices) +
                       " devices cannot share well: --microbatches " +
                       std::to_string(4 * devices) + ", say");
  }

  void noteLimitAboveDevice() {
    const plan::DeviceModel &device = facts.topology.device;
    const auto memory = static_cast<int64_t>(device.memoryBytes);
    if (memory > 0 && options.memoryLimit > memory)
      diagnostics.note(
          "--memory-limit is " + report::bytes(options.memoryLimit) +
          " a device, more than the " + report::bytes(memory) + " it has (" +
          device.name + "): the plan may not fit there");
  }

  bool forGpus() const { return facts.topology.device.kind != "cpu"; }

  void checkEmit() {
    if (!forGpus() && (options.emit == "ptx" || options.emit == "cubin"))
      throw Failure(Exit::Usage,
                    "--emit " + options.emit + " is for GPUs: give --gpus NxM");
  }

  //===--------------------------------------------------------------------===//
  // Phases
  //===--------------------------------------------------------------------===//

  /// Pieces of a sequence need its attention in parts that can be cut.
  bool fusesAttention() const {
    const bool cut = purpose == Purpose::Train && slicesAsked(options) > 1;
    if (options.attention == "fused" && cut)
      throw Failure(Exit::Usage,
                    "--attention fused does not go with pieces of a sequence: "
                    "leave out --slices or take --attention plain");
    return options.attention == "fused" ||
           (options.attention == "auto" && forGpus() && !cut);
  }

  bool import() {
    const bool hasSaidNotes = options.quiet || options.again;
    if (KnownModel *known = knownModel(); known && hasSaidNotes) {
      module = cast<ModuleOp>((*known->module)->clone());
      importReport = known->report;
      return true;
    }
    onnx::ImportOptions o;
    o.dims = options.dims;
    o.constants = options.constants;
    o.freeze = options.freeze;
    o.trainOnly = options.trainOnly;
    o.tie = options.tie;
    o.untie = options.untie;
    o.forwardOnly = purpose != Purpose::Train;
    o.evaluates = purpose == Purpose::Evaluate;
    if (options.batchNorm == "inference" || purpose == Purpose::Evaluate)
      o.batchNorm = onnx::BatchNorm::Inference;
    else if (options.batchNorm == "train")
      o.batchNorm = onnx::BatchNorm::Written;
    module =
        onnx::importModel(options.model, o, context, diagnostics, importReport);
    if (!module)
      return false;
    if (memory)
      memory->batch = importReport.batchDimension;
    if (purpose != Purpose::Infer) {
      checkLossNames(options, importReport, diagnostics);
      if (!diagnostics.empty())
        return false;
    }
    dump("import");
    if (!phase("attach", [&](PassManager &pm) {
          addAttachPhase(pm, loss, purpose, options.precision, fusesAttention(),
                         forGpus());
        }))
      return false;
    if (purpose == Purpose::Train)
      noteLabel(options, importReport, planInputs(*module), diagnostics);
    return true;
  }

  /// Whether the model is one whose sequences can be cut as the options ask.
  bool checkPieces() {
    const int slices = purpose == Purpose::Train ? slicesAsked(options) : 1;
    if (slices == 1)
      return true;
    FailureOr<int64_t> length = sequenceLength(*module);
    if (failed(length))
      return false;
    if (slices > *length)
      throw Failure(Exit::Usage, "cannot cut sequences of " +
                                     std::to_string(*length) + " into " +
                                     std::to_string(slices) +
                                     " pieces: give a smaller --slices");
    return succeeded(checkSlices(*module, *length, slices));
  }

  /// The model of these options, where an earlier compilation has read it.
  KnownModel *knownModel() {
    const bool isKnown =
        memory && memory->model && options.dumpDirectory.empty() &&
        memory->model->options == KnownModel::deciding(options);
    return isKnown ? &*memory->model : nullptr;
  }

  /// Times, bytes and devices, measured ones where there is a profile.
  bool findCosts(plan::CostGraph &graph, ModelFacts &measured) {
    facts.microbatchSize = microbatchSize();
    const bool trains = purpose == Purpose::Train;
    if (trains)
      facts.optimizerBytes = optimizer->states(settings).size();
    if (KnownModel *known = knownModel()) {
      graph = known->graph;
      measured = known->facts;
      return true;
    }
    CostRequest request{trains, options.microbatches};
    request.keepsAll = options.recompute == "none";
    request.recomputes = KnownModel::recomputes(options);
    if (trains)
      request.optimizer = {options.optimizer, optimizerSettings()};
    request.caches = facts.topology.caches();
    if (failed(costGraph(*module, request, facts.topology.device, graph)))
      return false;
    measured = facts;
    if (purpose != Purpose::Evaluate)
      applyProfileFile(options, measured, graph);
    if (memory)
      memory->model.emplace(
          KnownModel{KnownModel::deciding(options),
                     OwningOpRef<ModuleOp>(cast<ModuleOp>(module->clone())),
                     importReport, graph, measured});
    return true;
  }

  bool makeDecision(std::optional<int> ranks) {
    original = OwningOpRef<ModuleOp>(cast<ModuleOp>(module->clone()));
    plan::CostGraph graph;
    ModelFacts measured;
    if (!findCosts(graph, measured))
      return false;
    const CompileOptions asked = LastDecision::deciding(options);
    if (memory && memory->last && memory->last->options == asked) {
      decision = memory->last->decision;
      return true;
    }
    decision = purpose == Purpose::Train
                   ? decide(options, graph, measured)
                   : decideForward(options, graph, measured, ranks);
    if (memory)
      memory->last.emplace(LastDecision{asked, decision});
    return true;
  }

  bool lowerToTasks() {
    const auto partition = [&](PassManager &pm) {
      addPartitionPhase(pm, decision.cuts());
    };
    const auto memory = [&](PassManager &pm) {
      addMemoryPhase(pm, /*evenRows=*/forGpus());
    };
    if (purpose != Purpose::Train)
      return phase("partition", partition) &&
             phase("split",
                   [&](PassManager &pm) { addSplitPhase(pm, false); }) &&
             phase("memory", memory);
    std::string recompute = decision.recompute            ? "full"
                            : options.recompute == "none" ? "none"
                                                          : "selective";
    const std::vector<std::string> values = optimizerSettings();
    bool split = false;
    for (const auto &order : decision.schedule.order)
      for (const schedule::Action &action : order)
        split = split || action.kind == schedule::Kind::W;
    return phase("partition", partition) &&
           (decision.slices == 1 || phase("slice",
                                          [&](PassManager &pm) {
                                            addSlicePhase(pm, decision.slices);
                                          })) &&
           phase("differentiate",
                 [&](PassManager &pm) {
                   addDifferentiatePhase(pm, options.microbatches, recompute);
                 }) &&
           phase("split", [&](PassManager &pm) { addSplitPhase(pm, split); }) &&
           phase("memory", memory) && phase("update", [&](PassManager &pm) {
             addUpdatePhase(pm, options.optimizer, values);
           });
  }

  std::vector<std::string> optimizerSettings() const {
    std::vector<std::string> values;
    for (auto &[name, value] : settings)
      values.push_back(name + "=" + roundTrip(value));
    return values;
  }

  template <typename AddPasses>
  bool phase(const std::string &name, AddPasses addPasses) {
    PassManager pm(&context);
    addPasses(pm);
    if (failed(pm.run(*module))) {
      if (diagnostics.empty())
        throw Failure(Exit::Internal, "phase '" + name +
                                          "' failed without saying why; run "
                                          "again with --dump-ir and report it");
      return false;
    }
    dump(name);
    return true;
  }

  void dump(const std::string &name) {
    if (options.dumpDirectory.empty())
      return;
    std::string number = std::to_string(++dumped);
    std::string path =
        options.dumpDirectory + "/" +
        std::string(2 - std::min<size_t>(2, number.size()), '0') + number +
        "-" + name + ".mlir";
    writeFile(path, textOf(*module));
  }

  static std::string textOf(ModuleOp module) {
    std::string text;
    llvm::raw_string_ostream out(text);
    OpPrintingFlags flags;
    flags.elideLargeElementsAttrs(-1);
    module.print(out);
    out << "\n";
    return text;
  }

  //===--------------------------------------------------------------------===//
  // Results
  //===--------------------------------------------------------------------===//

  std::string outputFolder() const {
    return options.output.empty()
               ? std::filesystem::path(options.model).stem().string() + ".plan"
               : options.output;
  }

  int emitText(ModuleOp m) { return emitCode({textOf(m)}); }

  int emitCode(const std::vector<std::string> &stages) {
    const std::vector<std::string> files =
        writeCode(options.emit, options.output, stages);
    if (!files.empty() && !options.quiet && options.format != "json")
      std::cout << "written    " << listed(files) << "\n";
    return 0;
  }

  int64_t microbatchSize() {
    for (const plan::Input &input : planInputs(*module))
      if (input.batch_axis == 0 && !input.shape.empty())
        return input.shape[0];
    return 1;
  }

  bool compileStages(PlanFolder *folder, std::vector<int64_t> &workspace,
                     std::vector<std::string> &codes);
  std::string cubinOf(const target::StageCode &code);
  int generate();
  int generate(PlanFolder &folder);
  int printDryRun();
  void showPlan(const plan::Plan &plan);
  OverLimit fullest(const plan::Plan &plan) const;
  plan::Plan planFor(const std::vector<int64_t> &workspace);
  bool isPlanned() const;
  bool findWorkspace(std::vector<int64_t> &workspace);

  const CompileOptions &options;
  const Purpose purpose;
  MLIRContext &context;
  Memory *const memory;
  Diagnostics diagnostics;
  onnx::ImportReport importReport;
  ModelFacts facts;
  Optimizer::Settings settings;
  const Optimizer *optimizer = nullptr;
  LossChoice loss;
  OwningOpRef<ModuleOp> module, original;
  Decision decision;
  int dumped = 0;
};

/// What the fullest device holds, and what it may.
OverLimit Compiler::fullest(const plan::Plan &plan) const {
  OverLimit most{0, deviceLimit(options, facts.topology), 0, decision.slices,
                 plan.predicted.step_s};
  std::map<std::pair<int, int>, int64_t> onDevice;
  most.planned = plan::peakBytes(decision.result.stages);
  most.recompute = decision.recompute;
  for (const plan::Rank &rank : plan.ranks) {
    const int64_t bytes = onDevice[{rank.host, rank.device}] += rank.peak_bytes;
    if (bytes > most.bytes)
      most.bytes = bytes, most.rank = rank.rank;
  }
  return most;
}

plan::Plan Compiler::planFor(const std::vector<int64_t> &workspace) {
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
  targetOptions.keepLlvm = options.emit == "llvm";
  targetOptions.keepObject = options.emit == "object";
  if (options.emit == "kernels" || options.emit == "llvm")
    targetOptions.gpuCode = targetOptions.GpuLlvm;
  else if (options.emit == "ptx")
    targetOptions.gpuCode = targetOptions.GpuPtx;
  codes.resize(workspace.size());
  checkCodeFiles(options.emit, options.output, workspace.size());
  for (auto stage : module->getOps<ModuleOp>()) {
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
    codes[id] = code.kernels + code.llvm + code.object;
    if (options.emit == "ptx")
      codes[id] += code.ptx;
    if (options.emit == "cubin")
      codes[id] += cubinOf(code);
    if ((folder || options.emit == "object") && forGpus() &&
        code.cubins.empty() && !id && purpose != Purpose::Evaluate)
      std::cerr << "pipec: note: no ptxas on this machine: the code is PTX "
                   "alone, which devices translate when it is loaded; "
                   "tools/setup.sh --cuda installs it\n";
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
    return emitCode(codes);
  }
  PlanFolder folder(outputFolder());
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
  folder.writeFolded(plan, foldedTensors(*original));
  folder.addFiles(plan, options.selfContained);
  folder.addStages(plan);
  plan::checkPlan(plan); // a plan that cannot run is never written
  folder.writeFile("plan.json", plan::toJson(plan));
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
  folder.commit();
  showPlan(plan);
  if (!options.quiet && options.format == "text")
    printNext(plan, outputFolder());
  return 0;
}

/// The summary, and what was asked for beside it.
void Compiler::showPlan(const plan::Plan &plan) {
  if (!options.dot.empty())
    writeFile(options.dot, planDot(decision.request.graph, decision.result));
  std::vector<plan::WhatIfRow> rows;
  if (!options.whatIf.empty())
    rows = plan::whatIf(decision.request, decision.result, options.whatIf);
  sayNotes();
  if (!options.quiet || options.format == "json")
    printPlan(plan, options.format == "json",
              rows.empty() ? nullptr : &decision.result, rows);
  else if (!rows.empty())
    std::cout << plan::whatIfTable(decision.result, rows);
}

/// The plan without code.
int Compiler::printDryRun() {
  std::vector<int64_t> workspace;
  if (!lowerToTasks() || !findWorkspace(workspace))
    return report();
  showPlan(planFor(workspace));
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
  for (auto stage : module->getOps<ModuleOp>()) {
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

} // namespace

static void prepare(MLIRContext &context) {
  context.loadDialect<func::FuncDialect, nn::NNDialect, pipe::PipeDialect>();
  context.disableMultithreading();
}

Prospect prospectOf(const CompileOptions &options) {
  MLIRContext context;
  prepare(context);
  return Compiler(options, Purpose::Train, context).prospect();
}

int compileCommand(int argc, char **argv) {
  CompileOptions options;
  if (!parseCompileOptions(argc, argv, options))
    return 0;
  MLIRContext context;
  prepare(context);
  const Purpose purpose = options.forwardOnly ? Purpose::Infer : Purpose::Train;
  bool tried = false;
  Memory memory;
  auto compile = [&](CompileOptions o) {
    o.again = std::exchange(tried, true);
    return Compiler(o, purpose, context, &memory).run();
  };
  auto plan = [&](CompileOptions o) {
    o.quiet = true;
    o.dumpDirectory.clear();
    return Compiler(o, purpose, context, &memory).prospect();
  };
  return withinLimit(options, compile, plan, memory.batch);
}

} // namespace pipec
