//===- Oracle.cpp - versioned sequential SGD ------------------------------===//
#include "runtime/run/Oracle.h"
#include "runtime/exec/GradientNorm.h"
#include "runtime/program/Memory.h"
#include "runtime/program/Sequence.h"
#include "runtime/program/Versions.h"
#include "runtime/state/RoundedWeights.h"
#include "runtime/state/Tensors.h"
#include "support/Failure.h"

#include <algorithm>
#include <cmath>

namespace pipec {
namespace {

/// The same stages on one rank; what is kept per microbatch or version is kept
/// once, the oracle has its own histories.
plan::Plan flatten(const plan::Plan &plan) {
  plan::Plan flat = plan;
  plan::Rank rank;
  for (plan::Stage &stage : flat.stages) {
    stage.ranks = {0};
    stage.versions = 1;
    for (auto &[name, region] : stage.regions)
      region.slots = 1;
    stage.regions.erase("gradients");
    stage.regions.erase("stats");
    rank.stages.push_back(stage.id);
  }
  // What tells a plan that trains from one that only evaluates.
  for (const plan::Rank &planned : plan.ranks)
    if (rank.program.actions.empty())
      rank.program = planned.program;
  flat.ranks = {rank};
  return flat;
}

} // namespace

Oracle::Buffer Oracle::buffer(int64_t bytes) const {
  const int64_t size = std::max(plan::kAlignment, plan::alignUp(bytes));
  Device *device = state->device.get();
  return {device->allocate(size),
          [=](char *memory) { device->release(memory, size); }};
}

Oracle::Oracle(const plan::Plan &plan, const std::string &folder,
               const DataSource &data, const Numbers &numbers)
    : plan(plan), flat(flatten(plan)), data(data), numbers(numbers),
      state(std::make_unique<RankState>(
          flat, folder, 0, openDevice({flat, 0, nullptr, nullptr, false}))) {
  loadInitial(*state, true);
  roundWeights(*state, 0);
  for (const plan::Stage &stage : plan.stages) {
    Stage &own = stages.emplace_back();
    own.unit = &state->unit(stage.id);
    const int64_t bytes = plan::regionOf(stage, "weights").bytes;
    Buffer initial = buffer(bytes);
    state->device->copy(initial.get(), own.unit->memory.weights(0), bytes);
    own.history.emplace(0, std::move(initial));
    for (size_t r = 0; r < stage.ranks.size(); ++r)
      own.gradients.push_back(buffer(plan::regionOf(stage, "gradients").bytes));
    const size_t rows = plan.strategy.update == "round"
                            ? stage.ranks.size()
                            : static_cast<size_t>(plan.training.microbatches);
    for (size_t k = 0; k < rows; ++k)
      own.stats.push_back(buffer(plan::regionOf(stage, "stats").bytes));
  }
}

int64_t Oracle::roundOf(const Stage &stage, int64_t step) const {
  if (plan.strategy.update == "step")
    return step;
  const plan::Stage &planned = plan.stages[stage.unit->stage->id];
  return step / static_cast<int64_t>(planned.ranks.size());
}

void Oracle::call(Stage &stage, PipecTask task, int64_t step,
                  int64_t microbatch, int64_t version, int replica,
                  const char *statsRow) {
  PipecFrame frame{};
  for (int region = 0; region < PIPEC_REGION_COUNT; ++region)
    frame.base[region] =
        stage.unit->memory.at(static_cast<PipecRegion>(region));
  Stage &holder = stages[plan::weightsStage(plan, stage.unit->stage->id)];
  auto weights = holder.history.find(version);
  if (weights == holder.history.end())
    throw Failure(Exit::Internal, "the oracle has no version " +
                                      std::to_string(version) + " of stage " +
                                      std::to_string(stage.unit->stage->id));
  frame.base[PIPEC_WEIGHTS] = weights->second.get();
  frame.base[PIPEC_GRADIENTS] = holder.gradients[replica].get();
  frame.base[PIPEC_STATS] = const_cast<char *>(statsRow);
  frame.step = step;
  frame.microbatch = microbatch;
  frame.seed = numbers.seed;
  frame.lr_factor = frame.grad_scale = 1;
  frame.device = stage.unit->device;
  state->device->run(task, frame);
}

/// What a stage has made goes where it is needed; with one microbatch under way
/// that place is free.
void Oracle::pass(const Stage &from, bool backward) {
  for (const plan::Edge &edge : plan.edges)
    if (edge.from_stage == from.unit->stage->id && edge.backward == backward)
      state->device->copy(
          stages[edge.to_stage].unit->memory.at(backward ? PIPEC_GRAD_IN
                                                         : PIPEC_IN) +
              edge.to_offset,
          from.unit->memory.at(plan::regionNamed(edge.from_region)) +
              edge.from_offset,
          edge.bytes);
}

float Oracle::forwardBackward(int64_t step, int64_t microbatch) {
  const int64_t number = step * plan.training.microbatches + microbatch;
  float loss = 0;
  std::vector<const char *> rows;
  for (Stage &stage : stages) {
    const plan::Stage &planned = plan.stages[stage.unit->stage->id];
    for (const plan::StageInput &input : planned.inputs)
      state->device->feed(stage.unit->memory.at(PIPEC_IN) + input.offset,
                          plan.inputs[input.input].bytes, [&](char *to) {
                            data.load(input.input, number, to);
                          });
    rows.push_back(stage.stats[stage.rows++].get());
    call(stage, stage.unit->library.forward, step, microbatch,
         plan::forwardVersion(plan, planned, roundOf(stage, step)), 0,
         rows.back());
    if (planned.computes_loss)
      state->device->download(&loss, stage.unit->memory.at(PIPEC_LOSS),
                              sizeof loss);
    pass(stage, false);
  }
  if (!state->trains)
    return loss;
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    const plan::Stage &planned = plan.stages[stage->unit->stage->id];
    const int64_t version =
        plan::backwardVersion(plan, planned, roundOf(*stage, step));
    const auto replica = static_cast<int>(
        (plan.strategy.update == "step" ? microbatch : number) %
        static_cast<int64_t>(planned.ranks.size()));
    const char *row = rows[static_cast<size_t>(planned.id)];
    const StageLibrary &library = stage->unit->library;
    if (planned.split_backward) {
      call(*stage, library.backwardInput, step, microbatch, version, replica,
           row);
      pass(*stage, true);
      call(*stage, library.backwardWeight, step, microbatch, version, replica,
           row);
    } else {
      call(*stage, library.backward, step, microbatch, version, replica, row);
      pass(*stage, true);
    }
  }
  return loss;
}

double Oracle::step(int64_t steps) {
  const int64_t t = next++;
  const int count = plan.training.microbatches;
  double sum = 0;
  for (int k = 0; k < count; ++k)
    sum += forwardBackward(t, k);
  if (!state->trains) {
    for (Stage &stage : stages)
      stage.rows = 0;
    return sum / count;
  }
  if (plan.strategy.update == "step") {
    std::vector<Stage *> all;
    for (Stage &stage : stages)
      all.push_back(&stage);
    update(all, t, 1);
    return sum / count;
  }
  // A stage updates when its round is full, or the training ends. Stages that
  // share a weight have rounds of the same length.
  std::map<std::pair<int64_t, int64_t>, std::vector<Stage *>> due;
  for (Stage &stage : stages) {
    const auto replicas =
        static_cast<int64_t>(plan.stages[stage.unit->stage->id].ranks.size());
    const int64_t present = t % replicas + 1;
    if (present == replicas || t + 1 == steps)
      due[{present, replicas}].push_back(&stage);
  }
  for (auto &[round, group] : due)
    update(group, t, 1.0 / static_cast<double>(round.first));
  return sum / count;
}

void Oracle::foldReplicas(Stage &stage) {
  const int64_t count =
      plan::regionOf(plan.stages[stage.unit->stage->id], "gradients").bytes / 4;
  std::vector<const float *> replicas;
  for (const Buffer &gradients : stage.gradients)
    replicas.push_back(floats(gradients.get()));
  if (replicas.size() > 1)
    state->device->sum(floats(stage.gradients[0].get()), replicas, count);
}

float *Oracle::gradient(int stage, int64_t offset) const {
  return floats(stages[stage].gradients[0].get() + offset);
}

void Oracle::foldTies(const std::vector<Stage *> &group) {
  for (const plan::Tie &tie : plan::ties(plan)) {
    const bool here =
        std::any_of(group.begin(), group.end(), [&](const Stage *stage) {
          return stage->unit->stage->id == tie.uses[0].stage;
        });
    if (!here)
      continue;
    std::vector<const float *> uses;
    for (const plan::Tie::Use &use : tie.uses)
      uses.push_back(gradient(use.stage, use.offset));
    const auto [stage, offset] = tie.copies[0];
    float *total = gradient(stage, offset);
    state->device->sum(total, uses, tie.bytes / 4);
    for (auto [stage, offset] : tie.copies)
      if (float *copy = gradient(stage, offset); copy != total)
        state->device->copy(reinterpret_cast<char *>(copy),
                            reinterpret_cast<const char *>(total), tie.bytes);
  }
}

double Oracle::clip() const {
  const double limit = plan.training.clip_norm;
  if (limit <= 0)
    return 1;
  std::vector<float> norms(plan.weights.size());
  for (size_t i = 0; i < norms.size(); ++i) {
    const int first = firstStageOf(plan, static_cast<int>(i));
    if (first < 0)
      continue;
    for (const plan::StageWeight &held : plan.stages[first].weights)
      if (held.weight == static_cast<int>(i) && !held.gradients.empty())
        norms[i] = static_cast<float>(
            state->device->norm(gradient(first, held.gradients[0].second),
                                elements(plan.weights[i])));
  }
  const auto total = static_cast<float>(
      norm(norms.data(), static_cast<int64_t>(norms.size())));
  const float coefficient = static_cast<float>(limit) / (total + 1e-6f);
  return coefficient > 1 ? 1 : coefficient;
}

void Oracle::update(const std::vector<Stage *> &group, int64_t step,
                    double share) {
  for (Stage *stage : group)
    foldReplicas(*stage);
  foldTies(group);
  const double scale = share * clip();
  for (Stage *stage : group) {
    const plan::Stage &planned = plan.stages[stage->unit->stage->id];
    PipecFrame frame{};
    for (int region = 0; region < PIPEC_REGION_COUNT; ++region)
      frame.base[region] =
          stage->unit->memory.at(static_cast<PipecRegion>(region));
    frame.seed = numbers.seed;
    frame.lr_factor = frame.grad_scale = 1;
    frame.device = stage->unit->device;
    const StageLibrary &library = stage->unit->library;
    for (int64_t row = 0; library.track && row < stage->rows; ++row) {
      frame.base[PIPEC_STATS] = stage->stats[row].get();
      frame.step =
          plan.strategy.update == "step" ? step : step - stage->rows + 1 + row;
      frame.microbatch = plan.strategy.update == "step" ? row : 0;
      state->device->run(library.track, frame);
    }
    stage->rows = 0;
    const int64_t bytes = plan::regionOf(planned, "weights").bytes;
    Buffer fresh = buffer(bytes);
    frame.base[PIPEC_WEIGHTS] = stage->history.at(stage->updates).get();
    frame.base[PIPEC_NEW_WEIGHTS] = fresh.get();
    frame.base[PIPEC_GRADIENTS] = stage->gradients[0].get();
    // The step of the round's first microbatch decides the learning rate.
    frame.step =
        plan.strategy.update == "step"
            ? step
            : stage->updates * static_cast<int64_t>(planned.ranks.size());
    frame.microbatch = 0;
    frame.lr_factor = numbers.rate(frame.step);
    frame.grad_scale = scale;
    frame.update = stage->updates + 1;
    if (library.update)
      state->device->run(library.update, frame);
    stage->history.emplace(++stage->updates, std::move(fresh));
    for (Buffer &gradient : stage->gradients)
      state->device->clear(gradient.get(),
                           plan::regionOf(planned, "gradients").bytes);
    // The rules only move forward: older versions have been read for good.
    const int64_t oldest =
        std::min(plan::forwardVersion(plan, planned, stage->updates),
                 plan::backwardVersion(plan, planned, stage->updates));
    stage->history.erase(stage->history.begin(),
                         stage->history.lower_bound(oldest));
  }
}

void Oracle::read(int index,
                  const std::function<void(const char *, int64_t)> &use) const {
  for (const Stage &stage : stages)
    for (const plan::StageWeight &held :
         plan.stages[stage.unit->stage->id].weights)
      if (held.weight == index)
        return state->device->read(
            held.region == "weights"
                ? stage.history.at(stage.updates).get() + held.offset
                : stage.unit->memory.at(plan::regionNamed(held.region)) +
                      held.offset,
            plan.weights[index].bytes, use);
}

} // namespace pipec
