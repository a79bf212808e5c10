//===- Json.cpp - a plan's figures for programs --------------------------===//
#include "report/Facts.h"
#include "report/Prediction.h"
#include "report/Report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pipec::report {

namespace {

using Json = nlohmann::ordered_json;

Json modelJson(const plan::Plan &plan) {
  Json weights;
  for (const char *role : {"weight", "frozen", "state", "constant"}) {
    RoleCount count = countRole(plan, role);
    weights[role] = {{"tensors", count.tensors}, {"elements", count.elements}};
  }
  Json frozen = Json::array();
  for (const plan::Weight &weight : plan.weights)
    if (weight.role == "frozen")
      frozen.push_back(weight.name);
  return {{"path", plan.model.path},     {"opset", plan.model.opset},
          {"inputs", plan.model.inputs}, {"outputs", plan.model.outputs},
          {"weights", weights},          {"frozen", frozen}};
}

Json trainingJson(const plan::Plan &plan) {
  const plan::Training &t = plan.training;
  return {{"loss", t.loss},
          {"loss_options", t.loss_options},
          {"optimizer", t.optimizer.kind},
          {"optimizer_options", t.optimizer.options},
          {"microbatches", t.microbatches},
          {"microbatch_size", t.microbatch_size},
          {"clip_norm", t.clip_norm},
          {"precision", t.precision}};
}

Json clusterJson(const plan::Cluster &cluster) {
  Json json = {{"kind", cluster.kind},
               {"device", cluster.device},
               {"servers", cluster.servers},
               {"devices_per_server", cluster.devices_per_server}};
  if (!cluster.levels.empty())
    json["levels"] = cluster.levels;
  return json;
}

Json stagesJson(const plan::Plan &plan) {
  Json list = Json::array();
  for (const plan::Stage &s : plan.stages)
    list.push_back({{"id", s.id},
                    {"ranks", s.ranks},
                    {"first_node", s.first_node},
                    {"last_node", s.last_node},
                    {"first_name", s.first_name},
                    {"last_name", s.last_name},
                    {"parameters", s.parameters},
                    {"versions", s.versions},
                    {"recompute", s.recompute},
                    {"forward_s", s.cost.forward_s},
                    {"backward_input_s", s.cost.backward_input_s},
                    {"backward_weight_s", s.cost.backward_weight_s}});
  return list;
}

Json ranksJson(const plan::Plan &plan) {
  Json list = Json::array();
  for (const plan::Rank &r : plan.ranks)
    list.push_back({{"rank", r.rank},
                    {"host", r.host},
                    {"device", r.device},
                    {"stages", r.stages},
                    {"peak_bytes", r.peak_bytes},
                    {"weights_bytes", r.weights_bytes},
                    {"gradients_bytes", r.gradients_bytes},
                    {"optimizer_bytes", r.optimizer_bytes},
                    {"stash_bytes", r.stash_bytes},
                    {"workspace_bytes", r.workspace_bytes},
                    {"other_bytes", r.other_bytes}});
  return list;
}

Json transfersJson(const plan::Plan &plan) {
  Json list = Json::array();
  for (const plan::Edge &e : plan.edges)
    list.push_back({{"value", e.value},
                    {"gradient", e.backward},
                    {"from_stage", e.from_stage},
                    {"to_stage", e.to_stage},
                    {"bytes", e.bytes}});
  return list;
}

Json baselinesJson(const plan::Plan &plan) {
  Json list = Json::array();
  for (const plan::BaselineRow &row : plan.baselines)
    list.push_back({{"name", row.name},
                    {"fits", row.fits},
                    {"step_s", row.step_s},
                    {"samples_per_s", row.samples_per_s},
                    {"note", row.note}});
  return list;
}

Json timelineJson(const plan::Plan &plan) {
  auto prediction = predict(plan);
  if (!prediction)
    return nullptr;
  Json ranks = Json::array();
  for (size_t r = 0; r < prediction->schedule.order.size(); ++r) {
    Json tasks = Json::array();
    for (size_t i = 0; i < prediction->schedule.order[r].size(); ++i) {
      const schedule::Action &a = prediction->schedule.order[r][i];
      tasks.push_back({{"kind", std::string(1, schedule::letter(a.kind))},
                       {"stage", a.stage},
                       {"microbatch", a.microbatch},
                       {"start_s", prediction->timeline.start[r][i]},
                       {"end_s", prediction->timeline.end[r][i]}});
    }
    ranks.push_back(tasks);
  }
  return {{"step_s", prediction->timeline.makespan}, {"ranks", ranks}};
}

} // namespace

std::string inspectJson(const plan::Plan &plan) {
  const plan::Predicted &p = plan.predicted;
  Json json = {
      {"version", plan.version},
      {"pipec_version", plan.pipec_version},
      {"model", modelJson(plan)},
      {"training", trainingJson(plan)},
      {"cluster", clusterJson(plan.cluster)},
      {"strategy", plan.strategy.name},
      {"schedule", plan.schedule},
      {"synchronous", plan.strategy.synchronous},
      {"recompute", std::ranges::any_of(plan.stages, &plan::Stage::recompute)},
      {"slices", plan.strategy.slices},
      {"stages", stagesJson(plan)},
      {"ranks", ranksJson(plan)},
      {"transfers", transfersJson(plan)},
      {"predicted",
       {{"step_s", p.step_s},
        {"samples_per_s", p.samples_per_s},
        {"bubble", p.bubble},
        {"communication_bytes", p.communication_bytes},
        {"bottleneck", p.bottleneck},
        {"second", p.second}}},
      {"baselines", baselinesJson(plan)},
      {"timeline", timelineJson(plan)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace pipec::report
