//===- PlanCheck.cpp - is every number of a plan in its range? ------------===//
#include "runtime/program/PlanCheck.h"
#include "runtime/program/Memory.h"
#include "runtime/program/Sequence.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace pipec::plan {

void badPlan(const std::string &path, const std::string &what) {
  throw Failure(Exit::BadPlan, "plan.json: " + path + " " + what +
                                   "; compile the model again");
}

int64_t dtypeBytes(const std::string &dtype) {
  static const std::map<std::string, int64_t> bytes = {
      {"bool", 1},   {"int8", 1},    {"uint8", 1},    {"int16", 2},
      {"uint16", 2}, {"float16", 2}, {"bfloat16", 2}, {"int32", 4},
      {"uint32", 4}, {"float32", 4}, {"int64", 8},    {"uint64", 8},
      {"float64", 8}};
  auto found = bytes.find(dtype);
  return found == bytes.end() ? 0 : found->second;
}

namespace {

/// No plan comes near these; they keep every product below 2^63.
constexpr int64_t kMaxBytes = int64_t(1) << 44;
constexpr int64_t kMaxCount = int64_t(1) << 20;

std::string at(const char *array, size_t index) {
  return std::string(array) + "[" + std::to_string(index) + "]";
}

void inRange(const std::string &path, int64_t value, int64_t low,
             int64_t high) {
  if (value < low || value > high)
    badPlan(path, "is " + std::to_string(value) + ", must be in [" +
                      std::to_string(low) + ", " + std::to_string(high) + "]");
}

void isFinite(const std::string &path, double value) {
  if (!std::isfinite(value))
    badPlan(path, "is not finite");
}

/// [offset, offset + bytes) lies within `size` bytes, at a multiple of 64.
void fits(const std::string &path, int64_t offset, int64_t bytes,
          int64_t size) {
  if (offset < 0 || offset > size || bytes > size - offset)
    badPlan(path, "is " + std::to_string(offset) + " and " +
                      std::to_string(bytes) + " bytes long, outside its " +
                      std::to_string(size) + " bytes");
  if (offset % kAlignment)
    badPlan(path, "is " + std::to_string(offset) + ", not a multiple of 64");
}

/// Bytes of a dense tensor; checks its dtype and shape.
int64_t tensorBytes(const std::string &path, const std::string &dtype,
                    const std::vector<int64_t> &shape) {
  int64_t bytes = dtypeBytes(dtype);
  if (!bytes)
    badPlan(path + ".dtype", "is '" + dtype + "', not an element type");
  for (int64_t dim : shape) {
    inRange(path + ".shape", dim, 0, kMaxBytes);
    if (dim && bytes > kMaxBytes / dim)
      badPlan(path + ".shape", "is too large");
    bytes *= dim;
  }
  return bytes;
}

int64_t gradientBytes(const Weight &weight) {
  return weight.bytes / dtypeBytes(weight.dtype) * 4;
}

void checkSizes(const Plan &plan) {
  inRange("version", plan.version, kPlanVersion, kPlanVersion);
  const Training &training = plan.training;
  inRange("training.microbatches", training.microbatches, 1, kMaxCount);
  inRange("training.microbatch_size", training.microbatch_size, 1, kMaxCount);
  isFinite("training.clip_norm", training.clip_norm);
  if (training.clip_norm < 0)
    badPlan("training.clip_norm", "is negative");
  for (auto &[key, value] : training.optimizer.options)
    isFinite("training.optimizer.options." + key, value);
  isFinite("predicted.step_s", plan.predicted.step_s);
  isFinite("predicted.samples_per_s", plan.predicted.samples_per_s);
  isFinite("predicted.bubble", plan.predicted.bubble);
  for (size_t i = 0; i < plan.baselines.size(); ++i) {
    isFinite(at("baselines", i) + ".step_s", plan.baselines[i].step_s);
    isFinite(at("baselines", i) + ".samples_per_s",
             plan.baselines[i].samples_per_s);
  }
  const std::string &versions = plan.strategy.versions,
                    &update = plan.strategy.update;
  if (versions != "latest" && versions != "stash")
    badPlan("strategy.versions", "is '" + versions + "', not latest or stash");
  if (update != "step" && update != "round")
    badPlan("strategy.update", "is '" + update + "', not step or round");
  if ((update == "round") != (versions == "stash"))
    badPlan("strategy.versions", "does not go with strategy.update");
  inRange("strategy.slices", plan.strategy.slices, 1,
          static_cast<int64_t>(plan.stages.size()));
  if (plan.stages.size() % plan.strategy.slices)
    badPlan("strategy.slices", "does not divide the number of stages");
  if (plan.strategy.slices > 1 && update != "step")
    badPlan("strategy.slices", "needs one update a step");
  for (const Stage &stage : plan.stages)
    if (plan.strategy.post_validation &&
        (update != "step" || stage.ranks.size() != 1))
      badPlan("strategy.post_validation",
              "needs one update a step and one rank for each stage");
}

void checkTensors(const Plan &plan) {
  for (size_t i = 0; i < plan.files.size(); ++i)
    inRange(at("files", i) + ".bytes", plan.files[i].bytes, 0, kMaxBytes);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const Input &input = plan.inputs[i];
    const std::string path = at("inputs", i);
    if (tensorBytes(path, input.dtype, input.shape) != input.bytes)
      badPlan(path + ".bytes", "does not go with its shape and type");
    inRange(path + ".batch_axis", input.batch_axis, -1, 0);
    if (input.batch_axis == 0 &&
        (input.shape.empty() ||
         input.shape[0] != plan.training.microbatch_size))
      badPlan(path + ".shape", "must begin with training.microbatch_size");
  }
  std::set<std::string> names;
  for (size_t i = 0; i < plan.weights.size(); ++i) {
    const Weight &weight = plan.weights[i];
    const std::string path = at("weights", i);
    if (tensorBytes(path, weight.dtype, weight.shape) != weight.bytes)
      badPlan(path + ".bytes", "does not go with its shape and type");
    if (!names.insert(weight.name).second)
      badPlan(path + ".name", "'" + weight.name + "' occurs twice");
    if (weight.role != "weight" && weight.role != "frozen" &&
        weight.role != "state" && weight.role != "constant")
      badPlan(path + ".role", "is '" + weight.role + "'");
    if (weight.role == "weight" && weight.dtype != "float32")
      badPlan(path + ".dtype", "of a trained weight must be float32");
    for (const Copy &copy : weight.copies) {
      if (copy.transposed && weight.shape.size() != 2)
        badPlan(path + ".copies", "transposes a tensor that is no matrix");
      inRange(path + ".copies.repeats", copy.repeats, 1,
              kMaxBytes / std::max<int64_t>(weight.bytes, 1));
    }
    const Source &source = weight.source;
    inRange(path + ".source.file", source.file, 0,
            static_cast<int64_t>(plan.files.size()) - 1);
    inRange(path + ".source.length", source.length, weight.bytes, weight.bytes);
    inRange(path + ".source.offset", source.offset, 0,
            plan.files[source.file].bytes - source.length);
  }
}

void checkRegions(const std::string &path, const Stage &stage) {
  static const std::set<std::string> known = {
      "workspace", "constants", "weights", "gradients", "optimizer",
      "state",     "stats",     "in",      "stash",     "out",
      "grad_in",   "grad_out",  "wstash",  "outputs"};
  for (auto &[name, region] : stage.regions) {
    const std::string where = path + ".regions." + name;
    if (!known.count(name))
      badPlan(where, "is not a region");
    inRange(where + ".bytes", region.bytes, 0, kMaxBytes);
    bool slotted = false;
    for (auto [id, slottedName] : kSlotted)
      slotted |= name == slottedName;
    inRange(where + ".slots", region.slots, 1, slotted ? kMaxCount : 1);
    if (region.bytes && region.slots > kMaxBytes / region.bytes)
      badPlan(where, "is too large");
  }
  inRange(path + ".versions", stage.versions, 1, kMaxCount);
  inRange(path + ".warmup", stage.warmup, 0, kMaxCount);
  if (regionOf(stage, "weights").bytes > kMaxBytes / stage.versions)
    badPlan(path + ".versions", "are too many");
}

/// Copies lie in the weights' region, behind all weights and each other.
void checkRounded(const Plan &plan, const std::string &path,
                  const Stage &stage) {
  const int64_t size = regionOf(stage, "weights").bytes;
  int64_t end = 0;
  for (const StageWeight &weight : stage.weights)
    if (weight.region == "weights")
      end = std::max(end, weight.offset + plan.weights[weight.weight].bytes);
  for (size_t i = 0; i < stage.rounded.size(); ++i) {
    const Rounded &piece = stage.rounded[i];
    const std::string where = path + "." + at("rounded", i);
    inRange(where + ".row", piece.row, 1, kMaxBytes);
    inRange(where + ".rows", piece.rows, 1, kMaxBytes / piece.row);
    inRange(where + ".pitch", piece.pitch, piece.row, kMaxBytes / piece.rows);
    const int64_t bytes = piece.rows * piece.pitch * 2;
    fits(where + ".offset", piece.offset, piece.rows * piece.row * 4, size);
    fits(where + ".to", piece.to, bytes, size);
    if (piece.to < std::max(end, piece.offset + piece.rows * piece.row * 4))
      badPlan(where + ".to", "lies before the end of what is not rounded");
    end = piece.to + bytes;
  }
}

void checkStageWeight(const Plan &plan, const std::string &path,
                      const Stage &stage, const StageWeight &use,
                      std::set<int> &uses) {
  inRange(path + ".weight", use.weight, 0,
          static_cast<int64_t>(plan.weights.size()) - 1);
  const Weight &weight = plan.weights[use.weight];
  const std::string expected = weight.role == "weight"  ? "weights"
                               : weight.role == "state" ? "state"
                                                        : "constants";
  if (use.region != expected)
    badPlan(path + ".region", "is '" + use.region + "', a tensor with role '" +
                                  weight.role + "' is in " + expected);
  fits(path + ".offset", use.offset, weight.bytes,
       regionOf(stage, use.region).bytes);
  const bool trains = weight.role == "weight" && !forwardOnly(plan);
  if (trains == use.gradients.empty())
    badPlan(path + ".gradients",
            trains ? "is empty, but the weight trains" : "must be empty");
  for (auto &[index, offset] : use.gradients) {
    if (!uses.insert(index).second)
      badPlan(path + ".gradients",
              "has the use " + std::to_string(index) + ", which occurs twice");
    fits(path + ".gradients", offset, gradientBytes(weight),
         regionOf(stage, "gradients").bytes);
  }
  for (auto &[name, offset] : use.optimizer)
    fits(path + ".optimizer." + name, offset, gradientBytes(weight),
         regionOf(stage, "optimizer").bytes);
}

/// A stage of a later piece of a sequence uses what the first one's holds.
void checkPiece(const Plan &plan, size_t index) {
  const Stage &stage = plan.stages[index];
  const int holder = weightsStage(plan, static_cast<int>(index));
  if (plan.strategy.slices == 1)
    return;
  const std::string path = at("stages", index);
  if (stage.ranks.size() != 1 || stage.ranks != plan.stages[holder].ranks)
    badPlan(path + ".ranks", "must be the one rank of stage " +
                                 std::to_string(holder) +
                                 ", of whose sequences it has a piece");
  if (stage.tracks)
    badPlan(path + ".tracks", "does not go with strategy.slices");
  if (holder == static_cast<int>(index))
    return;
  if (!stage.weights.empty())
    badPlan(path + ".weights",
            "must be empty: stage " + std::to_string(holder) + " has them");
  for (const char *name :
       {"constants", "weights", "gradients", "optimizer", "state", "stats"})
    if (regionOf(stage, name).bytes)
      badPlan(path + ".regions." + name,
              "is in stage " + std::to_string(holder) + " already");
}

void checkStageRanks(const Plan &plan, size_t index) {
  const Stage &stage = plan.stages[index];
  const std::string path = at("stages", index);
  inRange(path + ".id", stage.id, index, index);
  if (stage.ranks.empty())
    badPlan(path + ".ranks", "is empty");
  std::set<int> ranks;
  for (int rank : stage.ranks) {
    inRange(path + ".ranks", rank, 0,
            static_cast<int64_t>(plan.ranks.size()) - 1);
    if (!ranks.insert(rank).second)
      badPlan(path + ".ranks", "names a rank twice");
  }
}

void checkStage(const Plan &plan, size_t index,
                std::vector<std::set<int>> &uses) {
  const Stage &stage = plan.stages[index];
  const std::string path = at("stages", index);
  const std::string &library = stage.library;
  if (library.empty() || library[0] == '/' ||
      ("/" + library + "/").find("/../") != std::string::npos)
    badPlan(path + ".library", "must be a path inside the plan folder");
  if (stage.sha256.size() != 64 ||
      stage.sha256.find_first_not_of("0123456789abcdef") != std::string::npos)
    badPlan(path + ".sha256", "must be 64 hex digits");
  isFinite(path + ".cost.forward_s", stage.cost.forward_s);
  isFinite(path + ".cost.backward_input_s", stage.cost.backward_input_s);
  isFinite(path + ".cost.backward_weight_s", stage.cost.backward_weight_s);
  checkRegions(path, stage);
  for (size_t i = 0; i < stage.inputs.size(); ++i) {
    const StageInput &input = stage.inputs[i];
    const std::string where = path + "." + at("inputs", i);
    inRange(where + ".input", input.input, 0,
            static_cast<int64_t>(plan.inputs.size()) - 1);
    fits(where + ".offset", input.offset, plan.inputs[input.input].bytes,
         regionOf(stage, "in").bytes);
  }
  std::set<int> here;
  for (size_t i = 0; i < stage.weights.size(); ++i) {
    const std::string where = path + "." + at("weights", i);
    const int weight = stage.weights[i].weight;
    inRange(where + ".weight", weight, 0,
            static_cast<int64_t>(plan.weights.size()) - 1);
    if (!here.insert(weight).second)
      badPlan(where + ".weight", "is in this stage twice");
    checkStageWeight(plan, where, stage, stage.weights[i], uses[weight]);
  }
  checkRounded(plan, path, stage);
}

void checkEdges(const Plan &plan) {
  inRange("edges", plan.edges.size(), 0, kMaxCount - 1);
  for (size_t i = 0; i < plan.edges.size(); ++i) {
    const Edge &edge = plan.edges[i];
    const std::string path = at("edges", i);
    const int64_t lastStage = static_cast<int64_t>(plan.stages.size()) - 1;
    inRange(path + ".id", edge.id, i, i);
    inRange(path + ".bytes", edge.bytes, 0, kMaxBytes);
    inRange(path + ".from_stage", edge.from_stage, 0, lastStage);
    inRange(path + ".to_stage", edge.to_stage, 0, lastStage);
    if (edge.from_stage == edge.to_stage)
      badPlan(path + ".to_stage", "is the stage the edge comes from");
    const bool good = edge.backward ? edge.from_region == "grad_out"
                                    : edge.from_region == "out" ||
                                          edge.from_region == "stash";
    if (!good)
      badPlan(path + ".from_region", "is '" + edge.from_region + "'");
    if (edge.to_region != (edge.backward ? "grad_in" : "in"))
      badPlan(path + ".to_region", "is '" + edge.to_region + "'");
    fits(path + ".from_offset", edge.from_offset, edge.bytes,
         regionOf(plan.stages[edge.from_stage], edge.from_region).bytes);
    fits(path + ".to_offset", edge.to_offset, edge.bytes,
         regionOf(plan.stages[edge.to_stage], edge.to_region).bytes);
  }
}

void checkOutputs(const Plan &plan) {
  std::set<std::string> names;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const Output &output = plan.outputs[i];
    const std::string path = at("outputs", i);
    if (!names.insert(output.name).second)
      badPlan(path + ".name", "'" + output.name + "' occurs twice");
    if (tensorBytes(path, output.dtype, output.shape) != output.bytes)
      badPlan(path + ".bytes", "does not go with its shape and type");
    inRange(path + ".batch_axis", output.batch_axis, -1, 0);
    if (output.batch_axis == 0 &&
        (output.shape.empty() ||
         output.shape[0] != plan.training.microbatch_size))
      badPlan(path + ".shape", "must begin with training.microbatch_size");
    inRange(path + ".stage", output.stage, 0,
            static_cast<int64_t>(plan.stages.size()) - 1);
    fits(path + ".offset", output.offset, output.bytes,
         regionOf(plan.stages[output.stage], "outputs").bytes);
  }
}

void checkRanks(const Plan &plan) {
  for (size_t i = 0; i < plan.ranks.size(); ++i) {
    const Rank &rank = plan.ranks[i];
    const std::string path = at("ranks", i);
    inRange(path + ".rank", rank.rank, i, i);
    std::set<int> stages;
    for (int stage : rank.stages) {
      inRange(path + ".stages", stage, 0,
              static_cast<int64_t>(plan.stages.size()) - 1);
      stages.insert(stage);
    }
    std::set<int> expected;
    for (const Stage &stage : plan.stages)
      for (int owner : stage.ranks)
        if (owner == rank.rank)
          expected.insert(stage.id);
    if (stages != expected || stages.size() != rank.stages.size())
      badPlan(path + ".stages", "does not go with the ranks of the stages");
    if (rank.program.kind != "step" && rank.program.kind != "stream")
      badPlan(path + ".program.kind",
              "is '" + rank.program.kind + "', not step or stream");
    if (rank.program.kind != plan.ranks[0].program.kind)
      badPlan(path + ".program.kind", "differs from that of rank 0");
  }
}

void checkMemory(const Plan &plan) {
  for (const Rank &rank : plan.ranks) {
    const RankMemory memory = rankMemory(plan, rank.rank);
    const std::pair<const char *, std::pair<int64_t, int64_t>> parts[] = {
        {"weights_bytes", {rank.weights_bytes, memory.weights}},
        {"gradients_bytes", {rank.gradients_bytes, memory.gradients}},
        {"optimizer_bytes", {rank.optimizer_bytes, memory.optimizer}},
        {"stash_bytes", {rank.stash_bytes, memory.stash}},
        {"workspace_bytes", {rank.workspace_bytes, memory.workspace}},
        {"other_bytes", {rank.other_bytes, memory.other}},
        {"peak_bytes", {rank.peak_bytes, memory.total()}}};
    for (auto &[name, values] : parts)
      if (values.first != values.second)
        badPlan(at("ranks", rank.rank) + "." + name,
                "is " + std::to_string(values.first) + ", its regions make " +
                    std::to_string(values.second));
  }
}

} // namespace

void checkPlan(const Plan &plan) {
  if (plan.stages.empty() || plan.ranks.empty())
    badPlan(plan.stages.empty() ? "stages" : "ranks", "is empty");
  inRange("stages", plan.stages.size(), 1, 1 << 14);
  inRange("ranks", plan.ranks.size(), 1, 1 << 14);
  checkSizes(plan);
  checkTensors(plan);
  for (size_t i = 0; i < plan.stages.size(); ++i)
    checkStageRanks(plan, i);
  for (size_t i = 0; i < plan.stages.size(); ++i)
    checkPiece(plan, i);
  checkRanks(plan);
  checkPrograms(plan);
  std::vector<std::set<int>> uses(plan.weights.size());
  for (size_t i = 0; i < plan.stages.size(); ++i)
    checkStage(plan, i, uses);
  checkEdges(plan);
  checkOutputs(plan);
  checkTies(plan);
  checkMemory(plan);
  checkExecution(plan);
}

} // namespace pipec::plan
