//===- HostTraffic.cpp - traffic over a transport of the host -------------===//
#include "runtime/exec/HostTraffic.h"
#include "runtime/program/Memory.h"

#include <algorithm>
#include <cstring>

namespace pipec {

using plan::Edge;
using plan::rankOf;
using plan::Task;

HostTraffic::HostTraffic(RankState &state, Transport &transport, Watch &watch)
    : state(state), plan(state.plan), transport(transport), watch(watch),
      edges(plan::stageEdges(state.plan)), owner(plan.stages.size() * 2),
      receiving(plan.edges.size()), posted(plan.edges.size()),
      standing(plan.edges.size()), sending(plan.edges.size()),
      copying(plan.edges.size()) {
  auto slots = [&](int stage, const std::string &region) {
    return static_cast<size_t>(
        plan::regionOf(plan.stages[stage], region).slots);
  };
  for (auto &unit : state.units) {
    owners(unit->stage->id, PIPEC_IN).assign(slots(unit->stage->id, "in"), -1);
    owners(unit->stage->id, PIPEC_GRAD_IN)
        .assign(slots(unit->stage->id, "grad_in"), -1);
  }
  for (const Edge &edge : plan.edges) {
    if (state.has(edge.to_stage))
      receiving[edge.id].assign(slots(edge.to_stage, edge.to_region),
                                kNoRequest);
    if (state.has(edge.from_stage)) {
      sending[edge.id].assign(slots(edge.from_stage, edge.from_region),
                              kNoRequest);
      copying[edge.id].assign(sending[edge.id].size(), -1);
    }
  }
}

Operation HostTraffic::operation(const Edge &edge, bool receiving, int peer,
                                 int64_t microbatch) const {
  Operation result;
  if (receiving)
    result.what =
        edge.backward ? "waiting for gradient" : "waiting for activation";
  else
    result.what = edge.backward ? "waiting to send gradient"
                                : "waiting to send activation";
  result.value = edge.value.c_str();
  result.stage = receiving ? edge.to_stage : edge.from_stage;
  result.peer = peer;
  const bool stream = plan.strategy.update == "round";
  result.step = stream ? microbatch : step;
  result.microbatch = stream ? -1 : microbatch;
  return result;
}

void HostTraffic::start(const plan::Sequence &newSequence, int64_t newStep,
                        int64_t) {
  sequence = &newSequence;
  step = newStep;
  cursor = 0;
  for (auto &slots : posted)
    slots.clear();
  post();
}

void HostTraffic::post() {
  for (; cursor < sequence->size(); ++cursor) {
    const Task task = sequence->at(cursor);
    if (task.kind == 'W')
      continue;
    if (!claim(task))
      return;
    for (int edge : edges[task.stage].into(task.kind))
      receive(edge, task);
  }
}

bool HostTraffic::claim(const Task &task) {
  const PipecRegion region = task.kind == 'F' ? PIPEC_IN : PIPEC_GRAD_IN;
  if (state.unit(task.stage).memory.bytes(region) == 0)
    return true; // nothing can be overwritten
  int64_t &slot = owners(task.stage, region)[task.slot[region]];
  if (slot >= 0)
    return false;
  slot = task.microbatch;
  return true;
}

void HostTraffic::receive(int id, const Task &task) {
  const Edge &edge = plan.edges[id];
  const PipecRegion region = edge.backward ? PIPEC_GRAD_IN : PIPEC_IN;
  const int from = rankOf(plan.stages[edge.from_stage], task.microbatch);
  if (from == state.rank) {
    auto &waiting = copying[id];
    auto found = std::find(waiting.begin(), waiting.end(), task.microbatch);
    if (found != waiting.end())
      copyIfReady(id, static_cast<int>(found - waiting.begin()));
    return;
  }
  const int slot = task.slot[region];
  if (standing[id] > 0) { // from before a restart
    --standing[id];
    return;
  }
  posted[id].push_back(slot);
  receiving[id][slot] = transport.receive(
      from, id, state.unit(task.stage).memory.at(region, slot) + edge.to_offset,
      edge.bytes);
}

void HostTraffic::copyIfReady(int id, int slot) {
  const Edge &edge = plan.edges[id];
  const int64_t microbatch = copying[id][slot];
  const PipecRegion to = edge.backward ? PIPEC_GRAD_IN : PIPEC_IN;
  const PipecRegion from = plan::regionNamed(edge.from_region);
  auto &slots = owners(edge.to_stage, to);
  auto found = std::find(slots.begin(), slots.end(), microbatch);
  if (found == slots.end())
    return; // the slot is still in use: when it is claimed
  std::memcpy(state.unit(edge.to_stage).memory.at(to, found - slots.begin()) +
                  edge.to_offset,
              state.unit(edge.from_stage).memory.at(from, slot) +
                  edge.from_offset,
              static_cast<size_t>(edge.bytes));
  copying[id][slot] = -1;
}

void HostTraffic::before(const Task &task) {
  for (int id : edges[task.stage].into(task.kind)) {
    const Edge &edge = plan.edges[id];
    const int from = rankOf(plan.stages[edge.from_stage], task.microbatch);
    const PipecRegion region = edge.backward ? PIPEC_GRAD_IN : PIPEC_IN;
    watch.wait(transport, receiving[id][task.slot[region]],
               operation(edge, true, from, task.microbatch));
  }
  for (int id : edges[task.stage].outOf(task.kind)) {
    const Edge &edge = plan.edges[id];
    const int slot = task.slot[plan::regionNamed(edge.from_region)];
    const int to = rankOf(plan.stages[edge.to_stage], task.microbatch);
    watch.wait(transport, sending[id][slot],
               operation(edge, false, to, task.microbatch));
    if (copying[id][slot] >= 0)
      throw Failure(Exit::Internal,
                    "edge " + std::to_string(id) +
                        " is overwritten before its stage has taken it");
  }
}

void HostTraffic::send(int id, const Task &task) {
  const Edge &edge = plan.edges[id];
  const PipecRegion region = plan::regionNamed(edge.from_region);
  const int slot = task.slot[region];
  const int to = rankOf(plan.stages[edge.to_stage], task.microbatch);
  if (to == state.rank) {
    copying[id][slot] = task.microbatch;
    copyIfReady(id, slot);
    return;
  }
  sending[id][slot] = transport.send(
      to, id, state.unit(task.stage).memory.at(region, slot) + edge.from_offset,
      edge.bytes);
}

void HostTraffic::after(const Task &task) {
  for (int id : edges[task.stage].outOf(task.kind))
    send(id, task);
  if (task.last) {
    owners(task.stage, PIPEC_IN)[task.slot[PIPEC_IN]] = -1;
    if (task.kind != 'F')
      owners(task.stage, PIPEC_GRAD_IN)[task.slot[PIPEC_GRAD_IN]] = -1;
  }
  post();
}

bool HostTraffic::comesHere(const Edge &edge) const {
  return state.has(edge.to_stage) &&
         plan.stages[edge.from_stage].ranks[0] != state.rank;
}

void HostTraffic::takeBack(const std::vector<int64_t> &before) {
  for (const Edge &edge : plan.edges) {
    auto &slots = posted[edge.id];
    const auto passing = static_cast<size_t>(before[edge.id]);
    if (!comesHere(edge) || passing == 0)
      continue;
    for (size_t i = passing; i < slots.size(); ++i)
      transport.cancel(receiving[edge.id][slots[i]]);
    slots.resize(std::min(slots.size(), passing));
  }
}

/// Receives what was sent in vain, in the order of sending on every edge at
/// once: a sender may wait for room on any of them.
void HostTraffic::letPass(const std::vector<int64_t> &before) {
  int64_t most = 0;
  for (int64_t count : before)
    most = std::max(most, count);
  for (int64_t i = 0; i < most; ++i) {
    std::vector<std::pair<int, Request *>> round;
    for (const Edge &edge : plan.edges) {
      if (!comesHere(edge) || before[edge.id] <= i)
        continue;
      auto &slots = posted[edge.id];
      if (i >= static_cast<int64_t>(slots.size())) {
        const PipecRegion region = edge.backward ? PIPEC_GRAD_IN : PIPEC_IN;
        slots.push_back(0); // all before it have been waited for
        receiving[edge.id][0] = transport.receive(
            plan.stages[edge.from_stage].ranks[0], edge.id,
            state.unit(edge.to_stage).memory.at(region, 0) + edge.to_offset,
            edge.bytes);
      }
      round.push_back({edge.id, &receiving[edge.id][slots[i]]});
    }
    for (auto [id, request] : round)
      watch.wait(transport, *request,
                 operation(plan.edges[id], true,
                           plan.stages[plan.edges[id].from_stage].ranks[0],
                           -1));
  }
}

void HostTraffic::restart(const std::vector<int64_t> &before) {
  letPass(before);
  for (auto &slots : owner)
    std::fill(slots.begin(), slots.end(), -1);
  for (auto &slots : copying)
    std::fill(slots.begin(), slots.end(), -1);
  for (const Edge &edge : plan.edges) {
    if (before[edge.id] > 0)
      posted[edge.id].clear();
    standing[edge.id] = posted[edge.id].size();
  }
  cursor = 0;
  post();
}

void HostTraffic::finish() {
  for (const Edge &edge : plan.edges)
    for (Request &request : sending[edge.id])
      watch.wait(transport, request, operation(edge, false, -1, -1));
}

void HostTraffic::shorten(const plan::Sequence &shorter, int64_t end) {
  for (const Edge &edge : plan.edges) {
    if (!state.has(edge.to_stage))
      continue;
    const PipecRegion region = edge.backward ? PIPEC_GRAD_IN : PIPEC_IN;
    auto &slots = owners(edge.to_stage, region);
    for (size_t slot = 0; slot < slots.size(); ++slot)
      if (slots[slot] >= end)
        transport.cancel(receiving[edge.id][slot]);
  }
  for (auto &slots : owner)
    for (int64_t &microbatch : slots)
      if (microbatch >= end)
        microbatch = -1;
  // The shorter sequence is the longer one without those microbatches.
  int64_t kept = 0;
  for (int64_t i = 0; i < cursor; ++i)
    kept += sequence->at(i).microbatch < end;
  sequence = &shorter;
  cursor = kept;
  post();
}

} // namespace pipec
