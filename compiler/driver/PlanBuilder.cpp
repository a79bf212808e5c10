//===- PlanBuilder.cpp - the plan of a compiled module --------------------===//
#include "compiler/driver/PlanBuilder.h"

#include "compiler/driver/FasterRows.h"
#include "compiler/driver/Slots.h"
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "runtime/program/Memory.h"
#include "support/Version.h"

#include "llvm/ADT/StringMap.h"

#include <numeric>
#include <set>

using namespace mlir;

namespace pipec {

std::string typeName(Type element) {
  if (element.isF32())
    return "float32";
  if (element.isF64())
    return "float64";
  if (element.isF16())
    return "float16";
  if (element.isBF16())
    return "bfloat16";
  if (element.isInteger(1))
    return "bool";
  auto integer = cast<IntegerType>(element);
  return (integer.isUnsigned() ? "uint" : "int") +
         std::to_string(integer.getWidth());
}

static int64_t integer(DictionaryAttr d, StringRef key) {
  return d.getAs<IntegerAttr>(key).getInt();
}
static std::string text(DictionaryAttr d, StringRef key) {
  return d.getAs<StringAttr>(key).getValue().str();
}

//===----------------------------------------------------------------------===//
// Inputs
//===----------------------------------------------------------------------===//

/// Integer inputs that index a table directly: their values have a range, which
/// begins below 0 (ONNX counts from the end) unless they are labels as well.
/// What a label has to say "not counted" would read a row all the same.
static void limitByGathers(func::FuncOp main, std::vector<plan::Input> &list) {
  for (auto gather : main.getOps<nn::GatherOp>()) {
    Value indices = gather.getIndices();
    while (Operation *def = indices.getDefiningOp()) {
      if (!isa<nn::ReshapeOp, nn::CastOp>(def))
        break;
      indices = def->getOperand(0);
    }
    auto argument = dyn_cast<BlockArgument>(indices);
    if (!argument)
      continue;
    int64_t rows = nn::tensorType(gather.getX()).getDimSize(gather.getAxis());
    plan::Input &input = list[argument.getArgNumber()];
    input.upper = input.upper < 0 ? rows : std::min(input.upper, rows);
    if (!main.getArgAttr(argument.getArgNumber(), "nn.upper"))
      input.lower = -input.upper;
    input.ignored = INT64_MIN;
  }
}

std::vector<plan::Input> planInputs(ModuleOp module) {
  func::FuncOp main = mainFunction(module);
  std::vector<plan::Input> list;
  for (unsigned i = 0; i < main.getNumArguments(); ++i) {
    auto type = nn::tensorType(main.getArgument(i));
    plan::Input input;
    input.name = main.getArgAttrOfType<StringAttr>(i, "nn.name").str();
    input.dtype = typeName(type.getElementType());
    input.shape.assign(type.getShape().begin(), type.getShape().end());
    input.bytes = nn::byteSize(type);
    if (auto axis = main.getArgAttrOfType<IntegerAttr>(i, "nn.batch_axis"))
      input.batch_axis = axis.getInt();
    if (auto upper = main.getArgAttrOfType<IntegerAttr>(i, "nn.upper"))
      input.upper = upper.getInt();
    if (auto ignored = main.getArgAttrOfType<IntegerAttr>(i, "nn.ignored"))
      input.ignored = ignored.getInt();
    list.push_back(input);
  }
  limitByGathers(main, list);
  return list;
}

namespace {

class PlanBuilder {
public:
  explicit PlanBuilder(const PlanInputs &in)
      : in(in), original(in.original), staged(in.staged) {}

  plan::Plan run() {
    addHeader();
    addFiles();
    addWeights();
    plan.inputs = planInputs(in.original);
    for (const plan::Input &input : plan.inputs)
      inputIndex[input.name] = inputIndex.size();
    addEdges();
    for (auto stage : staged.getOps<ModuleOp>())
      if (stage->hasAttr(pipe::kStageAttr))
        addStage(stage);
    addRanks();
    addPrediction();
    return std::move(plan);
  }

private:
  void addHeader() {
    const CompileOptions &o = in.options;
    plan.pipec_version = kVersion;
    plan.model.path = o.model;
    plan.model.opset = in.opset;
    plan.model.inputs = in.modelInputs;
    plan.model.outputs = in.modelOutputs;
    if (in.purpose != Purpose::Infer) {
      plan.training.loss = o.loss;
      plan.training.loss_options = o.lossOptions;
    }
    if (in.purpose == Purpose::Train) {
      plan.training.optimizer = {in.optimizer, in.optimizerSettings};
      plan.training.clip_norm = o.clipNorm;
    }
    plan.training.precision = o.precision;
    plan.training.microbatches = in.request.microbatches;
    plan.training.microbatch_size = in.request.microbatchSize;
    plan.cluster.kind =
        in.request.topology.device.kind == "cpu" ? "cpu" : "cuda";
    plan.cluster.device = in.request.topology.device.name;
    if (plan.cluster.device == "native" && !in.options.profile.empty())
      plan.cluster.device = "profiled";
    plan.cluster.devices_per_server = devicesPerServer();
    plan.cluster.servers =
        in.request.topology.devices() / plan.cluster.devices_per_server;
    if (in.request.topology.levels.size() > 2)
      for (const plan::Level &level : in.request.topology.levels)
        plan.cluster.levels.emplace_back(level.name, level.count);
    plan.strategy = {in.strategy.name,
                     in.strategy.schedule,
                     strategy::toString(in.strategy.versions),
                     in.strategy.update == strategy::Update::Round ? "round"
                                                                   : "step",
                     in.strategy.synchronous(),
                     in.strategy.update == strategy::Update::Validated &&
                         !in.request.strategy.barrier,
                     in.slices};
    plan.schedule = in.schedule.name;
  }

  int devicesPerServer() {
    const auto &levels = in.request.topology.levels;
    int n = 1;
    for (size_t i = 1; i < levels.size(); ++i)
      n *= levels[i].count;
    return n;
  }

  void addFiles() {
    if (auto files = original->getAttrOfType<ArrayAttr>("nn.files"))
      for (auto file : files.getAsRange<DictionaryAttr>()) {
        plan::File f;
        f.absolute = text(file, "path");
        plan.files.push_back(f);
      }
  }

  void addWeights() {
    std::set<std::string> used;
    for (auto stage : staged.getOps<ModuleOp>())
      for (auto parameter : stage.getOps<nn::ParameterOp>())
        used.insert(parameter.getSymName().str());
    for (auto parameter : original.getOps<nn::ParameterOp>()) {
      std::string name = parameter.getSymName().str();
      if (!used.count(name))
        continue;
      auto type = parameter.getTensorType();
      plan::Weight w;
      w.name = name;
      w.dtype = typeName(type.getElementType());
      w.role = parameter.getRole().str();
      w.shape.assign(type.getShape().begin(), type.getShape().end());
      w.bytes = nn::byteSize(type);
      w.exported = w.role == "weight" || w.role == "state";
      if (parameter.getFile() && !parameter.getStored())
        w.source = {static_cast<int>(*parameter.getFile()),
                    static_cast<int64_t>(*parameter.getOffset()),
                    static_cast<int64_t>(*parameter.getLength())};
      if (auto splits = original->getAttrOfType<ArrayAttr>("nn.splits"))
        for (auto split : splits.getAsRange<DictionaryAttr>())
          if (text(split, "name") == name)
            w.split = {text(split, "of"), integer(split, "node"),
                       integer(split, "input")};
      if (auto ties = original->getAttrOfType<ArrayAttr>("nn.ties"))
        for (auto tie : ties.getAsRange<DictionaryAttr>())
          if (text(tie, "of") == name)
            w.copies.push_back({text(tie, "name"),
                                tie.getAs<BoolAttr>("transposed").getValue(),
                                integer(tie, "repeats")});
      weightIndex[name] = plan.weights.size();
      plan.weights.push_back(w);
    }
  }

  void addEdges() {
    auto edges = staged->getAttrOfType<ArrayAttr>("pipe.edges");
    for (auto d : edges.getAsRange<DictionaryAttr>()) {
      plan::Edge e;
      e.id = plan.edges.size();
      e.value = text(d, "value");
      e.backward = d.getAs<BoolAttr>("backward").getValue();
      e.bytes = integer(d, "bytes");
      e.from_stage = integer(d, "from");
      e.from_region = text(d, "from_region");
      e.from_offset = integer(d, "from_offset");
      e.to_stage = integer(d, "to");
      e.to_region = text(d, "to_region");
      e.to_offset = integer(d, "to_offset");
      plan.edges.push_back(e);
    }
  }

  bool receives(int stage, bool backward) const {
    for (const plan::Edge &e : plan.edges)
      if (e.to_stage == stage && e.backward == backward)
        return true;
    return false;
  }

  //===--------------------------------------------------------------------===//
  // Stages
  //===--------------------------------------------------------------------===//

  /// A piece of a sequence has the stage's cuts.
  const plan::StagePlan &plannedStage(int stage) const {
    return in.result.stages[stage % in.result.stages.size()];
  }

  void addStage(ModuleOp module) {
    plan::Stage s;
    s.id = module->getAttrOfType<IntegerAttr>(pipe::kStageAttr).getInt();
    s.ranks = in.schedule.placement[s.id];
    s.library = "stages/stage" + std::to_string(s.id) + ".so";
    const plan::StagePlan &planned = plannedStage(s.id);
    s.first_node = planned.firstNode;
    s.last_node = planned.lastNode;
    s.first_name = in.request.graph.nodes[s.first_node].name;
    s.last_name = in.request.graph.nodes[s.last_node].name;
    s.cost = {planned.forwardSeconds / in.slices,
              planned.backwardInputSeconds / in.slices,
              planned.backwardWeightSeconds / in.slices};
    for (auto task : module.getOps<func::FuncOp>()) {
      StringRef name =
          task->getAttrOfType<StringAttr>(pipe::kTaskAttr).getValue();
      s.split_backward |= name == "backward_weight" || name == "backward_input";
      s.tracks |= name == "track";
    }
    s.computes_loss =
        in.purpose != Purpose::Infer && s.id + 1 == in.schedule.stages;
    s.recompute = planned.recompute;
    addStageWeights(module, s);
    addStageInputs(module, s);
    addOutputs(module, s);
    addRegions(module, s);
    plan.stages.push_back(s);
  }

  void addStageWeights(ModuleOp module, plan::Stage &s) {
    auto states = module->getAttrOfType<ArrayAttr>("pipe.optimizer");
    auto list = module->getAttrOfType<ArrayAttr>("pipe.weights");
    for (auto d : list.getAsRange<DictionaryAttr>()) {
      plan::StageWeight w;
      w.weight = weightIndex.lookup(text(d, "parameter"));
      w.region = text(d, "region");
      w.offset = integer(d, "offset");
      for (Attribute use : d.getAs<ArrayAttr>("uses")) {
        ArrayRef<int64_t> pair = cast<DenseI64ArrayAttr>(use);
        w.gradients.push_back({static_cast<int>(pair[0]), pair[1]});
      }
      if (w.region == "weights") {
        if (w.gradients.empty()) // trained, but the loss does not depend on it
          w.gradients.push_back({0, w.offset});
        if (states)
          for (auto state : states.getAsRange<DictionaryAttr>())
            w.optimizer.push_back(
                {text(state, "name"), integer(state, "offset") + w.offset});
      }
      const plan::Weight &weight = plan.weights[w.weight];
      const bool inference = in.purpose != Purpose::Train;
      if (w.region == "weights" || (inference && weight.role == "frozen"))
        s.parameters +=
            std::accumulate(weight.shape.begin(), weight.shape.end(),
                            int64_t(1), std::multiplies<>());
      s.weights.push_back(w);
    }
  }

  void addStageInputs(ModuleOp module, plan::Stage &s) {
    auto list = module->getAttrOfType<ArrayAttr>("pipe.inputs");
    for (auto d : list.getAsRange<DictionaryAttr>())
      s.inputs.push_back({static_cast<int>(inputIndex.at(text(d, "input"))),
                          integer(d, "offset")});
  }

  void addOutputs(ModuleOp module, const plan::Stage &s) {
    auto list = module->getAttrOfType<ArrayAttr>("pipe.outputs");
    for (auto d : list.getAsRange<DictionaryAttr>()) {
      auto type = cast<RankedTensorType>(d.getAs<TypeAttr>("type").getValue());
      plan::Output output;
      output.name = text(d, "output");
      output.dtype = typeName(type.getElementType());
      output.shape.assign(type.getShape().begin(), type.getShape().end());
      output.bytes = nn::byteSize(type);
      output.batch_axis = static_cast<int>(integer(d, "batch_axis"));
      output.stage = s.id;
      output.offset = integer(d, "offset");
      plan.outputs.push_back(output);
    }
  }

  void addRegions(ModuleOp module, plan::Stage &s) {
    auto regions = module->getAttrOfType<DictionaryAttr>("pipe.regions");
    for (NamedAttribute region : regions)
      s.regions[region.getName().str()] = {
          cast<IntegerAttr>(region.getValue()).getInt(), 1};
    if (auto rounded = module->getAttrOfType<ArrayAttr>("pipe.rounded"))
      for (auto d : rounded.getAsRange<DictionaryAttr>())
        s.rounded.push_back({integer(d, "offset"), integer(d, "rows"),
                             integer(d, "row"), integer(d, "to"),
                             integer(d, "pitch")});
    if (int64_t bytes = in.workspaceBytes[s.id])
      s.regions["workspace"] = {bytes, 1};
    if (in.strategy.synchronous())
      addStepSlots(s);
    else
      addStreamSlots(s);
  }

  void setSlots(plan::Stage &s, const std::string &region, int slots) {
    auto it = s.regions.find(region);
    if (it != s.regions.end())
      it->second.slots = std::max(it->second.slots, slots);
  }

  SlotRequest slotRequest(const plan::Stage &s) {
    return {receives(s.id, false), receives(s.id, true), s.split_backward,
            in.spareSlots};
  }

  void addStepSlots(plan::Stage &s) {
    setSlots(s, "stats", in.request.microbatches);
    for (int rank : s.ranks) {
      const plan::RegionSlots counts =
          assignSlots(in.schedule.order[rank], s.id, slotRequest(s)).counts;
      for (auto [region, name] : plan::kSlotted)
        if (counts.has(region))
          setSlots(s, name, counts.at(region));
    }
  }

  /// PipeDream: warm-up + 1 microbatches in flight, as many versions.
  void addStreamSlots(plan::Stage &s) {
    strategy::Pipeline pipeline = pipelineOf();
    s.warmup = strategy::warmup(pipeline, s.id);
    s.versions = strategy::versions(in.strategy, pipeline, s.id);
    setSlots(s, "in", s.warmup + 1 + receives(s.id, false));
    setSlots(s, "stash", s.warmup + 1);
    setSlots(s, "stats", s.warmup + 1);
    setSlots(s, "out", 2);
    setSlots(s, "grad_in", 1 + receives(s.id, true));
    setSlots(s, "grad_out", 2);
  }

  strategy::Pipeline pipelineOf() {
    strategy::Pipeline pipeline;
    pipeline.microbatches = in.request.microbatches;
    for (const auto &copies : in.schedule.placement)
      pipeline.replicas.push_back(copies.size());
    return pipeline;
  }

  //===--------------------------------------------------------------------===//
  // Ranks
  //===--------------------------------------------------------------------===//

  void addRanks() {
    for (int r = 0; r < in.schedule.devices(); ++r) {
      plan::Rank rank;
      rank.rank = r;
      rank.stages = in.schedule.stagesOf(r);
      int device = r;
      if (rank.stages.size() == static_cast<size_t>(in.slices)) {
        int stage = rank.stages[0];
        const auto &devices = plannedStage(stage).devices;
        size_t copy = in.schedule.replicaOn(stage, r);
        if (copy < devices.size())
          device = devices[copy];
      }
      rank.host = device / plan.cluster.devices_per_server;
      rank.device = device % plan.cluster.devices_per_server;
      addProgram(rank);
      plan.ranks.push_back(rank);
    }
    for (plan::Rank &rank : plan.ranks) {
      plan::RankMemory memory = plan::rankMemory(plan, rank.rank);
      rank.peak_bytes = memory.total();
      rank.weights_bytes = memory.weights;
      rank.gradients_bytes = memory.gradients;
      rank.optimizer_bytes = memory.optimizer;
      rank.stash_bytes = memory.stash;
      rank.workspace_bytes = memory.workspace;
      rank.other_bytes = memory.other;
    }
  }

  void addProgram(plan::Rank &rank) {
    rank.program.kind = in.strategy.synchronous() ? "step" : "stream";
    if (!in.strategy.synchronous())
      return;
    const auto &order = in.schedule.order[rank.rank];
    std::map<int, SlotPlan> slots;
    for (int stage : rank.stages)
      slots[stage] = slotsToName(order, plan.stages[stage]);
    rank.program.actions.reserve(order.size());
    for (size_t i = 0; i < order.size(); ++i)
      rank.program.actions.push_back(
          {std::string(1, schedule::letter(order[i].kind)), order[i].stage,
           order[i].microbatch, slots[order[i].stage].used[i]});
  }

  /// Those of regions with a choice.
  SlotPlan slotsToName(const std::vector<schedule::Action> &order,
                       const plan::Stage &stage) {
    SlotPlan slots = assignSlots(order, stage.id, slotRequest(stage));
    for (auto [region, name] : plan::kSlotted)
      if (plan::regionOf(stage, name).slots <= 1)
        for (plan::RegionSlots &used : slots.used)
          used.erase(region);
    return slots;
  }

  void addPrediction() {
    plan.predicted = {in.result.stepSeconds, in.result.samplesPerSecond,
                      in.result.bubble,      in.result.communicationBytes,
                      in.result.bottleneck,  in.result.runnerUp};
    for (const plan::Baseline &b : in.result.baselines) {
      double samples = static_cast<double>(in.request.microbatches) *
                       in.request.microbatchSize;
      const std::string why = whyNotChosen(in.options, b, in.result);
      const bool both = !b.note.empty() && !why.empty();
      plan.baselines.push_back({b.name, b.fits, b.stepSeconds,
                                b.stepSeconds > 0 ? samples / b.stepSeconds : 0,
                                b.note + (both ? "; " : "") + why});
    }
  }

  const PlanInputs &in;
  ModuleOp original, staged;
  plan::Plan plan;
  llvm::StringMap<int> weightIndex;
  std::map<std::string, size_t> inputIndex;
};

} // namespace

plan::Plan buildPlan(const PlanInputs &inputs) {
  return PlanBuilder(inputs).run();
}

} // namespace pipec
