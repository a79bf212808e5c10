//===- Compiler.cpp - from a model to the tasks of its stages -------------===//
#include "compiler/driver/Compiler.h"

#include "compiler/driver/CompileFiles.h"
#include "compiler/driver/CostModel.h"
#include "compiler/driver/DiagnosticCollector.h"
#include "compiler/driver/LossSettings.h"
#include "compiler/driver/OddWeights.h"
#include "compiler/driver/ProfileFile.h"
#include "compiler/driver/ShardedSummary.h"
#include "compiler/driver/Untrained.h"
#include "compiler/plan/PeakBytes.h"
#include "compiler/target/cuda/Passes.h"
#include "compiler/target/native/Processor.h"
#include "passes/Graph.h"
#include "passes/Pipelines.h"
#include "passes/SliceSequence.h"
#include "report/Format.h"
#include "support/OutputFile.h"
#include "support/Phase.h"
#include "support/UnknownName.h"

#include "mlir/Pass/PassManager.h"

#include <iostream>
#include <utility>

using namespace mlir;

namespace pipec {

int Compiler::run() {
  readOptions();
  checkEmit();
  target::checkProcessor(options.targetCpu);
  if (!options.dot.empty())
    expectWritable(options.dot);
  DiagnosticCollector collector(context, diagnostics);
  if (!import())
    return report();
  noteFewMicrobatches();
  noteLimitAboveDevice();
  sayNotes();
  if (options.emit == "nn")
    return emitCode({text()});
  if (!checkPieces() || !makeDecision(std::nullopt))
    return report();
  sayNotes();
  if (isSharded(decision.result))
    return printSharded();
  if (options.dryRun)
    return printDryRun();
  if (!lowerToTasks() || !keepsToLimit())
    return report();
  if (options.emit == "pipe")
    return emitCode({text()});
  noteOddWeights();
  return generate();
}

/// Throws where code that is only shown takes more than --memory-limit: it is
/// that of the plan that a compile would make. False after an error.
bool Compiler::keepsToLimit() {
  std::vector<int64_t> workspace;
  if (options.emit.empty() || options.memoryLimit <= 0)
    return true;
  if (!findWorkspace(workspace))
    return false;
  planFor(workspace);
  return true;
}

/// The plan that would be made; -1 byte for a model too large to tell.
Prospect Compiler::prospect() {
  readOptions();
  DiagnosticCollector collector(context, diagnostics);
  std::vector<int64_t> workspace;
  if (!import() || !checkPieces() || !makeDecision(std::nullopt))
    throw Failure(Exit::Usage, "no plan");
  if (!isPlanned())
    return {-1, 0};
  if (!lowerToTasks() || !findWorkspace(workspace))
    throw Failure(Exit::Usage, "no plan");
  return {fullest(planFor(workspace)).bytes, decision.result.stepSeconds,
          plan::peakBytes(decision.result.stages),
          !decision.recomputedStages().empty()};
}

plan::Replanned Compiler::replanned() {
  const Prospect made = prospect();
  plan::Replanned row = decision.replanned(options);
  row.counted = std::max<int64_t>(0, made.bytes);
  return row;
}

//===----------------------------------------------------------------------===//
// What is said
//===----------------------------------------------------------------------===//

/// Says what no attempt before has said; with JSON that is kept for the report.
void Compiler::sayNotes() {
  for (const std::string &note : diagnostics.takeNotes())
    if (memory && !options.quiet && memory->isNew(note) &&
        options.format != "json")
      std::cerr << noteLine(note);
}

int Compiler::report() {
  sayNotes();
  if (options.format != "json") {
    std::cerr << diagnostics.text(options.model);
  } else {
    if (memory)
      for (const std::string &note : memory->notes)
        diagnostics.note(note);
    std::cerr << diagnostics.json(options.model);
  }
  return static_cast<int>(diagnostics.exitCode());
}

/// Who leaves the option out may not know that a pipeline needs it.
void Compiler::noteFewMicrobatches() {
  const int devices = facts.topology.devices();
  if (purpose == Purpose::Train && !options.microbatchesGiven &&
      options.strategy != "pipedream" && devices > 1)
    diagnostics.note("a step is one microbatch, which " +
                     std::to_string(devices) +
                     " devices cannot share well: --microbatches " +
                     std::to_string(4 * devices) + ", say");
}

/// Only of a plan that is written, for which all weights are read anyhow.
void Compiler::noteOddWeights() {
  if (!options.emit.empty() || !memory || std::exchange(memory->hasRead, true))
    return;
  const Phase reading("reading the weights");
  if (const std::string odd = oddWeight(*original); !odd.empty())
    diagnostics.note(odd + ": what is computed from it is no number either, "
                           "and the run ends with the first such loss; export "
                           "the model with sound weights");
}

void Compiler::noteLimitAboveDevice() {
  const plan::DeviceModel &device = facts.topology.device;
  const auto memory = static_cast<int64_t>(device.memoryBytes);
  if (memory > 0 && options.memoryLimit > memory)
    diagnostics.note("--memory-limit is " + report::bytes(options.memoryLimit) +
                     " a device, more than the " + report::bytes(memory) +
                     " it has (" + device.name +
                     "): the plan may not fit there");
}

//===----------------------------------------------------------------------===//
// Options that need tables
//===----------------------------------------------------------------------===//

void Compiler::checkOptimizer() {
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

void Compiler::readOptions() {
  if (purpose == Purpose::Train)
    checkOptimizer();
  if (purpose != Purpose::Infer)
    loss = lossChoice(options);
  facts.topology = topologyOf(options);
}

void Compiler::checkEmit() {
  if (!forGpus() && (options.emit == "calls" || options.emit == "ptx" ||
                     options.emit == "cubin"))
    throw Failure(Exit::Usage,
                  "--emit " + options.emit + " is for GPUs: give --gpus NxM");
}

//===----------------------------------------------------------------------===//
// Phases
//===----------------------------------------------------------------------===//

/// Pieces of a sequence need its attention in parts that can be cut.
bool Compiler::fusesAttention() const {
  const bool cut = purpose == Purpose::Train && slicesAsked(options) > 1;
  if (options.attention == "fused" && cut)
    throw Failure(Exit::Usage,
                  "--attention fused does not go with pieces of a sequence: "
                  "leave out --slices or take --attention plain");
  return options.attention == "fused" ||
         (options.attention == "auto" && forGpus() && !cut);
}

/// All that is read, with the files of the model's weights.
static std::vector<std::string> filesOf(const CompileOptions &options,
                                        ModuleOp module) {
  std::vector<std::string> paths = inputFiles(options);
  if (auto files = module->getAttrOfType<ArrayAttr>("nn.files"))
    for (auto file : files.getAsRange<DictionaryAttr>())
      paths.push_back(file.getAs<StringAttr>("path").str());
  return paths;
}

bool Compiler::import() {
  if (KnownModel *known = knownModel()) {
    module = cast<ModuleOp>((*known->module)->clone());
    inputs = filesOf(options, *module);
    importReport = known->report;
    importNotes = known->notes;
    for (const std::string &note : importNotes)
      diagnostics.note(note);
    return true;
  }
  const Phase reading("reading the model");
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
  inputs = filesOf(options, *module);
  refuseToOverwrite(options, inputs);
  if (!options.batchNorm.empty() && !importReport.hasBatchNorms)
    diagnostics.note("--bn " + options.batchNorm +
                     " changes nothing: the file has no batch norms");
  if (options.roundedWeights != "keep" && options.precision != "bf16")
    diagnostics.note("--rounded-weights " + options.roundedWeights +
                     " changes nothing without --precision bf16");
  if (purpose != Purpose::Infer) {
    checkLossNames(options, importReport, diagnostics);
    if (!diagnostics.empty())
      return false;
  }
  dump("import");
  const std::vector<std::string> weights = trainedWeights(*module);
  if (!phase("attach", [&](PassManager &pm) {
        addAttachPhase(pm, loss, purpose, options.precision, fusesAttention(),
                       forGpus());
      }))
    return false;
  if (purpose == Purpose::Train) {
    noteLabel(options, importReport, planInputs(*module), diagnostics);
    noteUntrained(weights, *module, options, importReport, diagnostics);
  }
  importNotes = diagnostics.getNotes();
  return true;
}

/// Whether the model is one whose sequences can be cut as the options ask.
bool Compiler::checkPieces() {
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
KnownModel *Compiler::knownModel() {
  const bool isKnown = memory && memory->model &&
                       options.dumpDirectory.empty() &&
                       memory->model->options == KnownModel::deciding(options);
  return isKnown ? &*memory->model : nullptr;
}

int64_t Compiler::microbatchSize() {
  for (const plan::Input &input : planInputs(*module))
    if (input.batch_axis == 0 && !input.shape.empty())
      return input.shape[0];
  return 1;
}

/// Times, bytes and devices, measured ones where there is a profile.
bool Compiler::findCosts(plan::CostGraph &graph, ModelFacts &measured) {
  facts.microbatchSize = microbatchSize();
  const bool trains = purpose == Purpose::Train;
  if (trains)
    facts.optimizerBytes = optimizer->states(settings).size();
  if (KnownModel *known = knownModel()) {
    graph = known->graph;
    measured = known->facts;
    return true;
  }
  const Phase estimating("estimating costs");
  CostRequest request{trains, options.microbatches};
  request.keepsAll = options.recompute == "none";
  request.recomputes = KnownModel::recomputes(options);
  if (trains)
    request.optimizer = {options.optimizer, optimizerSettings()};
  request.shards = trains && options.tensorParallel != "1";
  request.caches = facts.topology.caches();
  request.memory = memoryChoice();
  if (failed(costGraph(*module, request, facts.topology.device, graph,
                       facts.repeats)))
    return false;
  measured = facts;
  if (purpose != Purpose::Evaluate)
    applyProfileFile(options, measured, graph);
  if (memory)
    memory->model.emplace(
        KnownModel{KnownModel::deciding(options),
                   OwningOpRef<ModuleOp>(cast<ModuleOp>(module->clone())),
                   importReport, importNotes, graph, measured});
  return true;
}

bool Compiler::makeDecision(std::optional<int> ranks) {
  original = OwningOpRef<ModuleOp>(cast<ModuleOp>(module->clone()));
  plan::CostGraph graph;
  ModelFacts measured;
  if (!findCosts(graph, measured))
    return false;
  for (const std::string &note : measured.notes)
    diagnostics.note(note);
  sayNotes(); // before what may be refused
  const CompileOptions asked = KnownDecision::deciding(options);
  if (const KnownDecision *known = memory ? memory->find(asked) : nullptr) {
    decision = known->get();
  } else {
    const Phase planning("planning");
    KnownDecision made{asked, {}, {}};
    try {
      made.found = purpose == Purpose::Train
                       ? decide(options, graph, measured)
                       : decideForward(options, graph, measured, ranks);
    } catch (const Failure &) {
      made.refusal = std::current_exception();
    }
    if (memory && graph.nodes.size() > kMostPlanned)
      memory->decisions.clear();
    if (memory)
      memory->decisions.push_back(made);
    decision = made.get();
  }
  for (const std::string &note : decision.notes)
    diagnostics.note(note);
  return true;
}

/// A number that reads back as the same double.
static std::string roundTrip(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::vector<std::string> Compiler::optimizerSettings() const {
  std::vector<std::string> values;
  for (auto &[name, value] : settings)
    values.push_back(name + "=" + roundTrip(value));
  return values;
}

MemoryChoice Compiler::memoryChoice() const {
  return {forGpus(),
          options.precision == "bf16" && options.roundedWeights == "keep"};
}

bool Compiler::lowerToTasks() {
  const Phase lowering("lowering");
  const auto partition = [&](PassManager &pm) {
    addPartitionPhase(pm, decision.cuts());
  };
  const auto memory = [&](PassManager &pm) {
    addMemoryPhase(pm, memoryChoice());
    if (forGpus())
      pm.addPass(cuda::createCudaAttentionStash());
  };
  if (purpose != Purpose::Train)
    return phase("partition", partition) &&
           phase("split", [&](PassManager &pm) { addSplitPhase(pm, false); }) &&
           phase("memory", memory);
  const std::string stash = options.recompute == "none" ? "none" : "selective";
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
                 addDifferentiatePhase(pm, options.microbatches, stash,
                                       decision.recomputedStages());
               }) &&
         phase("split", [&](PassManager &pm) { addSplitPhase(pm, split); }) &&
         phase("memory", memory) && phase("update", [&](PassManager &pm) {
           addUpdatePhase(pm, options.optimizer, values);
         });
}

bool Compiler::phase(const std::string &name,
                     const std::function<void(PassManager &)> &addPasses) {
  const Phase one(name);
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

std::string Compiler::text() {
  std::string text;
  llvm::raw_string_ostream out(text);
  module->print(out);
  out << "\n";
  return text;
}

void Compiler::dump(const std::string &name) {
  if (options.dumpDirectory.empty())
    return;
  std::string number = std::to_string(++dumped);
  std::string path = options.dumpDirectory + "/" +
                     std::string(2 - std::min<size_t>(2, number.size()), '0') +
                     number + "-" + name + ".mlir";
  for (const std::string &input : inputs)
    expectOther("--dump-ir", path, input);
  writeFile(path, text());
}

} // namespace pipec
