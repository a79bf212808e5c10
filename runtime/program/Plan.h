//===- Plan.h - plan.json as data -------------------------------*- C++ -*-===//
//
// What the compiler writes and the runtime executes; both include this file, so
// the format has one definition. Field names are the JSON keys. Nothing here is
// derived at run time: offsets, slots, orders and versions are all stated.
//
// Units: bytes, seconds. All ids count from 0. Offsets are multiples of 64.
// Element types have numpy's names (float32, int64, bool, bfloat16, ...).
// Gradient accumulators and optimizer state are float32. The gradient of the
// loss is seeded with 1/microbatches, so that the accumulated sum is the mean.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/program/RegionSlots.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pipec::plan {

constexpr int kPlanVersion = 5;

/// Inside the folder of a plan that trains: the plan that evaluates it.
constexpr const char *kEvaluationFolder = "evaluation";
/// Its output that the loss of the data is made of: for every sample the sum of
/// the loss's terms, and how much they count. A plan without it computes the
/// loss of a microbatch.
constexpr const char *kLossOfSamples = "pipec.loss_of_samples";

/// A file that holds tensors. Found by `relative` (to the plan folder), then
/// `absolute`; `sha256` must match.
struct File {
  std::string relative, absolute, sha256;
  int64_t bytes = 0;
};

/// Where a tensor's initial value is: bytes [offset, offset+length) of a file.
struct Source {
  int file = -1; ///< index into Plan::files
  int64_t offset = 0, length = 0;
};

/// An initializer that repeats a weight and is exported with it.
struct Copy {
  std::string name;
  bool transposed = false; ///< of a matrix
  int64_t repeats = 1;     ///< times the elements stand one after another
};

/// The input of a node for which a weight was split from an initializer that
/// several read; `of` is empty when it was not.
struct Split {
  std::string of;
  int64_t node = 0, input = 0;
};

/// A tensor of the model that lives longer than a step. `role`: "weight"
/// (trained), "frozen", "state" (running statistics), "constant" (folded).
struct Weight {
  std::string name, dtype, role;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  Source source;
  bool exported = false; ///< an initializer of the model file of this name,
                         ///< to be replaced on export
  Split split;
  std::vector<Copy> copies; ///< others that get the same values
};

/// A graph input (labels included), for one microbatch. `batch_axis` is 0, or
/// -1 for an input without one (then the array is the same for every one).
struct Input {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  int batch_axis = 0;
  int64_t upper = -1; ///< integer inputs: values must be in [lower, upper) when
  int64_t lower = 0;  ///< upper >= 0 (embedding rows, classes)
  int64_t ignored = INT64_MIN; ///< one value outside the range that is allowed
};

/// A model output of one microbatch, at OUTPUTS + offset after the forward of
/// its stage. A plan that trains has none; it holds a second plan, the folder
/// `evaluation`, which has. `batch_axis` as in Input.
struct Output {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  int batch_axis = 0;
  int stage = 0;
  int64_t offset = 0;
};

/// A use of a model input by a stage: copied to IN + offset.
struct StageInput {
  int input = 0;
  int64_t offset = 0;
};

/// A weight's place in a stage. `region`: "weights", "constants" or "state".
struct StageWeight {
  int weight = 0;
  std::string region;
  int64_t offset = 0;
  /// One accumulator per use of the weight in this stage, as (global index of
  /// the use, offset in GRADIENTS). With several uses (here or on other stages)
  /// the runtime folds them in the order of the use index, so that the sum has
  /// the same bits for every partition, and leaves the total in gradients[0].
  std::vector<std::pair<int, int64_t>> gradients;
  /// Optimizer state tensors, each of the weight's shape in fp32:
  /// (name, offset in OPTIMIZER), e.g. ("exp_avg", 0).
  std::vector<std::pair<std::string, int64_t>> optimizer;
};

/// A running statistic: STATE + state receives microbatch statistics from the
/// stats row of a microbatch (what pipec_track does; listed for checkpoints).
struct Region {
  int64_t bytes = 0; ///< of one slot
  int slots = 1;
};

/// Weights that are kept rounded to bfloat16, too: `rows` of `row` float32, one
/// behind the other from WEIGHTS + offset on, and rounded from WEIGHTS + to on,
/// a row `pitch` numbers behind the one before. Updates write both; who fills
/// in weights rounds them (roundWeights).
struct Rounded {
  int64_t offset = 0, rows = 0, row = 0, to = 0, pitch = 0;
};

/// Of a microbatch. A stage that computes its activations again does so in
/// `backward_input_s`.
struct Cost {
  double forward_s = 0, backward_input_s = 0, backward_weight_s = 0;
};

struct Stage {
  int id = 0;
  std::vector<int> ranks; ///< replica r is ranks[r]; microbatch k -> k mod size
  std::string library;    ///< relative to the plan folder
  std::string sha256;     ///< of the library, which must match
  int64_t first_node = 0, last_node = 0;
  std::string first_name, last_name;
  int64_t parameters = 0;
  Cost cost;
  bool split_backward = false; ///< pipec_backward_input/_weight, not _backward
  bool tracks = false;         ///< has pipec_track
  bool computes_loss = false;
  bool recompute = false; ///< its activations are computed again (backward)
  int versions = 1; ///< weight versions kept
  int warmup = 0;   ///< stream programs: forwards of a replica before it
                    ///< alternates forward, backward (0 for the last stage)
  /// Bytes and slots by region name: workspace constants weights gradients
  /// optimizer state stats in stash out grad_in grad_out wstash outputs.
  /// `weights` counts one version (kept `versions` times); a missing region is
  /// empty. stats: in a step program one slot per microbatch, used by its
  /// number.
  std::map<std::string, Region> regions;
  std::vector<Rounded> rounded; ///< not in the file where there are none
  std::vector<StageInput> inputs;
  std::vector<StageWeight> weights;
};

/// One message that travels for every microbatch from a stage to a stage: a
/// tensor, or several that lie side by side, 64 bytes aligned.
struct Edge {
  int id = 0;
  std::string value;
  bool backward = false; ///< a gradient: sent after B (or I), received for B
  int64_t bytes = 0;
  int from_stage = 0;
  std::string from_region; ///< "out" or "stash"; "grad_out"
  int64_t from_offset = 0;
  int to_stage = 0;
  std::string to_region; ///< "in"; "grad_in"
  int64_t to_offset = 0;
};

/// One action of a step program. `kind`: "F", "B", "I", "W". `slots` gives the
/// slot index by region name, for regions with more than one slot (not stats).
struct Action {
  std::string kind;
  int stage = 0, microbatch = 0;
  RegionSlots slots;
};

/// What a rank does. A "step" program (synchronous) lists one optimizer step,
/// which repeats; then gradients are reduced, the weights updated. A "stream"
/// program (pipedream) never flushes and lists no actions: with the rank's
/// microbatches numbered j = 0, 1, ... it does `warmup` forwards, then for
/// every j forward(j + warmup), backward(j), update; at the end only backwards
/// and updates remain. The slot of microbatch j and of version j is j modulo
/// their count.
struct Program {
  std::string kind; ///< "step" or "stream"
  std::vector<Action> actions;
};

struct Rank {
  int rank = 0, host = 0, device = 0;
  std::vector<int> stages;
  int64_t peak_bytes = 0, weights_bytes = 0, gradients_bytes = 0,
          optimizer_bytes = 0, stash_bytes = 0, workspace_bytes = 0;
  int64_t other_bytes = 0; ///< in, out, gradients in flight, constants, state
  Program program;
};

/// The version rule of the strategy (SYSTEMS: phi and beta), evaluated per
/// stage and local microbatch: "latest": both read the weights of the current
/// step; "stash": both read max(0, j - warmup) where j counts the stage's
/// rounds.
struct Strategy {
  std::string name, schedule, versions; ///< versions: "latest" or "stash"
  std::string update;                   ///< "step" or "round"
  bool synchronous = true;
  /// The update does not wait for the gradient norm of all stages: it is made,
  /// and undone and made again where the norm asks for it (PostValidation.h).
  bool post_validation = false;
  /// Pieces that sequences are cut into. With n of them and n * P stages, stage
  /// j * P + s is piece j of stage s: it is on the same rank and uses the
  /// constants, weights, gradients, optimizer state and running statistics of
  /// stage s, and lists none itself.
  int slices = 1;
};

struct Optimizer {
  std::string kind; ///< "sgd", "adam", "adamw"
  std::map<std::string, double> options;
};

struct Training {
  std::string loss;
  std::map<std::string, std::string> loss_options;
  Optimizer optimizer;
  int microbatches = 1, microbatch_size = 1;
  double clip_norm = 0;           ///< 0: none
  std::string precision = "fp32"; ///< of contractions: "fp32" or "bf16"
};

struct Predicted {
  double step_s = 0, samples_per_s = 0, bubble = 0;
  int64_t communication_bytes = 0; ///< of all ranks in a step
  std::string bottleneck;          ///< the stage or link that binds, and how
  std::string second; ///< what the next best strategy or shape would cost
};

/// What another way of training would take (named unlike the planner's own).
struct BaselineRow {
  std::string name;
  bool fits = true;
  double step_s = 0, samples_per_s = 0;
  std::string note;
};

struct Model {
  std::string path, sha256;
  int64_t opset = 0;
  std::vector<std::string> inputs, outputs;
};

struct Cluster {
  std::string kind; ///< "cpu" or "cuda"
  std::string device;
  int servers = 1, devices_per_server = 1;
  /// Names and counts, outermost first, of a cluster file that has more than
  /// servers and devices in them; else none, and not in the file.
  std::vector<std::pair<std::string, int>> levels = {};
};

struct Plan {
  int version = kPlanVersion;
  std::string pipec_version;
  Model model;
  Training training;
  Cluster cluster;
  Strategy strategy;
  std::string schedule;
  std::vector<File> files; ///< files[0] is the model
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<Weight> weights;
  std::vector<Stage> stages;
  std::vector<Edge> edges;
  std::vector<Rank> ranks;
  Predicted predicted;
  std::vector<BaselineRow> baselines;

  /// Whether a stage reads the input; one that none reads needs no array.
  bool reads(int input) const {
    for (const Stage &stage : stages)
      for (const StageInput &use : stage.inputs)
        if (use.input == input)
          return true;
    return false;
  }
};

/// Reads DIR/plan.json and checks it: every index in range, offsets inside
/// their regions, every edge's ends consistent, each rank's actions complete.
/// Throws Failure(BadPlan or NoInput) that names the field.
Plan readPlan(const std::string &directory);

/// The text of plan.json: keys in fixed order, stable byte for byte.
std::string toJson(const Plan &plan);

/// Throws Failure(BadPlan): the same checks as readPlan.
void checkPlan(const Plan &plan);

} // namespace pipec::plan
