//===- SamplePlan.cpp - a plan that was never compiled -------------------===//
#include "SamplePlan.h"

#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Schedule.h"
#include "runtime/program/Memory.h"
#include "runtime/program/Sequence.h"

#include <algorithm>

namespace pipec {
namespace {

constexpr int64_t kActivation = 4096, kWeight = 1024;

struct Maker {
  SampleOptions options;
  plan::Plan plan;
  schedule::Schedule schedule;

  plan::Plan make() {
    schedule::ScheduleRequest request;
    request.devices = options.stages * options.replicas;
    request.microbatches = options.microbatches;
    request.replicas.assign(options.stages, options.replicas);
    schedule = schedule::generate("1f1b", request);
    header();
    for (int s = 0; s < options.stages; ++s)
      stage(s);
    for (int s = 0; s + 1 < options.stages; ++s) {
      edge(s, s + 1, false);
      edge(s + 1, s, true);
    }
    for (int r = 0; r < request.devices; ++r)
      rank(r);
    return plan;
  }

  void header() {
    plan.pipec_version = "0.0.0";
    plan.model = {"models/sample <1>.onnx", "00", 18, {"x"}, {"y"}};
    plan.training.loss = "mse";
    plan.training.optimizer = {"sgd", {{"lr", 0.01}, {"momentum", 0.9}}};
    plan.training.microbatches = options.stream ? 1 : options.microbatches;
    plan.training.microbatch_size = 2;
    plan.cluster = {"cpu", "cpu", 1, options.stages * options.replicas};
    plan.strategy =
        options.stream
            ? plan::Strategy{"pipedream", "pipedream", "stash",
                             "round",     false,       false}
            : plan::Strategy{"1f1b", "1f1b", "latest", "step", true, false};
    plan.schedule = plan.strategy.schedule;
    plan.files = {{"../sample.onnx", "/models/sample.onnx", "00", 1 << 20}};
    plan.inputs = {{"x", "float32", {2, 512}, kActivation, 0}};
    plan.weights = {
        {"mask", "float32", "frozen", {16}, 64, {0, 0, 64}, false, {}}};
    plan.predicted = {0.0123, 1300, 0.25, 1 << 20};
    plan.baselines = {{"data parallel", true, 0.0246, 650, ""},
                      {"even split", false, 0, 0, "needs 3 GiB"}};
  }

  int inFlight(int s) const {
    return std::min(options.microbatches, options.stages - s);
  }

  void stage(int s) {
    plan::Stage stage;
    stage.id = s;
    stage.ranks = schedule.placement[s];
    stage.library = "stages/stage" + std::to_string(s) + ".so";
    stage.sha256 = std::string(64, '0');
    stage.first_node = 3 * s;
    stage.last_node = 3 * s + 2;
    stage.first_name = "layer" + std::to_string(s) + ".in";
    stage.last_name = "layer" + std::to_string(s) + ".out";
    stage.parameters = kWeight / 4;
    double forward = options.forwardSeconds * (1 + s / 10.0);
    stage.cost = {forward, forward, forward};
    stage.computes_loss = s + 1 == options.stages;
    const bool first = s == 0, last = stage.computes_loss;
    const int flight = inFlight(s);
    if (options.stream) {
      stage.warmup = options.stages - 1 - s;
      stage.versions = stage.warmup + 1;
    }
    stage.regions = {{"weights", {kWeight, 1}},
                     {"gradients", {kWeight, 1}},
                     {"optimizer", {kWeight, 1}},
                     {"workspace", {8192, 1}},
                     {"in", {kActivation, flight + !first}},
                     {"stash", {2 * kActivation, flight}}};
    if (!last) {
      stage.regions["out"] = {kActivation, 2};
      stage.regions["grad_in"] = {kActivation, 2};
    }
    if (!first)
      stage.regions["grad_out"] = {kActivation, 2};
    else {
      stage.regions["constants"] = {64, 1};
      stage.inputs = {{0, 0}};
      stage.weights.push_back({0, "constants", 0, {}, {}});
    }
    int weight = static_cast<int>(plan.weights.size());
    plan.weights.push_back({"layer" + std::to_string(s) + ".weight",
                            "float32",
                            "weight",
                            {16, 16},
                            kWeight,
                            {0, 64 + s * kWeight, kWeight},
                            true});
    stage.weights.push_back(
        {weight, "weights", 0, {{0, 0}}, {{"momentum_buffer", 0}}});
    plan.stages.push_back(stage);
  }

  void edge(int from, int to, bool backward) {
    plan.edges.push_back({static_cast<int>(plan.edges.size()),
                          plan.stages[from].last_name, backward, kActivation,
                          from, backward ? "grad_out" : "out", 0, to,
                          backward ? "grad_in" : "in", 0});
  }

  void rank(int r) {
    plan::Rank rank;
    rank.rank = r;
    rank.device = r;
    rank.stages = schedule.stagesOf(r);
    rank.program.kind = options.stream ? "stream" : "step";
    if (!options.stream)
      for (const schedule::Action &a : schedule.order[r]) {
        plan::Action action{std::string(1, schedule::letter(a.kind)),
                            a.stage,
                            a.microbatch,
                            {}};
        const int local = a.microbatch / options.replicas;
        for (const auto &[name, region] : plan.stages[a.stage].regions)
          if (region.slots > 1)
            action.slots.set(plan::regionNamed(name), local % region.slots);
        rank.program.actions.push_back(action);
      }
    plan.ranks.push_back(rank);
    plan::RankMemory memory = plan::rankMemory(plan, r);
    plan::Rank &stated = plan.ranks.back();
    stated.peak_bytes = memory.total();
    stated.weights_bytes = memory.weights;
    stated.gradients_bytes = memory.gradients;
    stated.optimizer_bytes = memory.optimizer;
    stated.stash_bytes = memory.stash;
    stated.workspace_bytes = memory.workspace;
    stated.other_bytes = memory.other;
  }
};

} // namespace

plan::Plan samplePlan(const SampleOptions &options) {
  return Maker{options, {}, {}}.make();
}

} // namespace pipec
