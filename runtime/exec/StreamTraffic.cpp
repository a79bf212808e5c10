//===- StreamTraffic.cpp - traffic between GPUs ---------------------------===//
#include "runtime/exec/StreamTraffic.h"
#include "runtime/program/Memory.h"

namespace pipec {

using plan::Edge;
using plan::Issue;
using plan::Task;
using Queue = cuda::Gpu::Queue;

StreamTraffic::StreamTraffic(RankState &state, cuda::Gpu &gpu)
    : state(state), plan(state.plan),
      streams(plan.ranks[0].program.kind == "stream"), gpu(gpu),
      edges(plan::stageEdges(state.plan)), exchange(gpu, /*joins=*/false),
      replicas(state, exchange,
               [&gpu](float *to, const std::vector<const float *> &terms,
                      int64_t count) {
                 gpu.sum(Queue::Communication, to, terms, count);
               }) {
  if (!streams)
    expectSums();
}

void StreamTraffic::expectSums() {
  order = std::move(plan::issueOrder(plan)[static_cast<size_t>(state.rank)]);
  for (const Issue &issue : order)
    if (issue.kind == Issue::Sum && issue.bucket == 0) {
      StageUnit &unit = state.unit(issue.stage);
      const plan::Stage &stage = *unit.stage;
      Sums of{
          &unit, plan::bucketsOf(stage), stage.split_backward ? 'W' : 'B', {}};
      of.order =
          completion(unit.library.task(of.kind), plan, stage, of.buckets);
      sums.emplace(issue.stage, std::move(of));
    }
}

void StreamTraffic::start(const plan::Sequence &, int64_t newStep,
                          int64_t end) {
  step = newStep;
  if (streams)
    order = std::move(
        plan::issueOrder(plan, step, end)[static_cast<size_t>(state.rank)]);
  next = 0;
  for (auto *events : {&made, &left, &used})
    events->clear();
  arrived.clear();
  for (auto &[stage, of] : sums)
    of.complete = nullptr;
  open = true;
  // What the last step left is behind everything.
  gpu.wait(Queue::Communication, gpu.record(Queue::Compute));
}

void StreamTraffic::issueMessages() {
  while (next < order.size() && order[next].kind != Issue::Compute &&
         order[next].kind != Issue::Round)
    issue(order[next++]);
}

void StreamTraffic::beforeRound() {
  issueMessages();
  // A rank that sums with nobody has no such place.
  next += next < order.size() && order[next].kind == Issue::Round;
}

void StreamTraffic::issue(const Issue &message) {
  if (message.kind == Issue::Sum)
    return issueSum(message, sums.at(message.stage).complete);
  const Edge &edge = plan.edges[message.edge];
  const PipecRegion from = plan::regionNamed(edge.from_region);
  const PipecRegion to = edge.backward ? PIPEC_GRAD_IN : PIPEC_IN;
  auto source = [&] {
    return state.unit(edge.from_stage).memory.at(from, message.fromSlot) +
           edge.from_offset;
  };
  auto target = [&] {
    return state.unit(edge.to_stage).memory.at(to, message.toSlot) +
           edge.to_offset;
  };
  if (message.kind == Issue::Copy) // among the tasks: all are in order
    return gpu.copy(target(), source(), edge.bytes);
  const bool sending = message.kind == Issue::Send;
  gpu.wait(Queue::Communication,
           sending ? made[{edge.from_stage, from, message.fromSlot}]
                   : used[{edge.to_stage, to, message.toSlot}]);
  Operation operation;
  operation.what = sending ? "queueing a send" : "queueing a receive";
  operation.value = edge.value.c_str();
  operation.stage = sending ? edge.from_stage : edge.to_stage;
  operation.peer = message.peer;
  operation.step = step;
  operation.microbatch = message.microbatch;
  gpu.exchange({{sending, message.peer, message.edge,
                 sending ? source() : target(), edge.bytes}},
               operation);
  const cuda::Event done = gpu.record(Queue::Communication);
  if (sending)
    left[{edge.from_stage, from, message.fromSlot}] = done;
  else
    arrived[{message.edge, message.toSlot}] = done;
}

void StreamTraffic::issueSum(const Issue &sum, cuda::Event complete) {
  Sums &of = sums.at(sum.stage);
  // A replica may have had nothing to do but to clear them.
  gpu.wait(Queue::Communication,
           complete ? complete : gpu.record(Queue::Compute));
  const int64_t bucket = of.order[static_cast<size_t>(sum.bucket)].bucket;
  replicas.run(*of.unit, {of.buckets.begin(bucket), of.buckets.length(bucket)},
               step);
}

void StreamTraffic::sumDuring(const Task &task) {
  const auto found = sums.find(task.stage);
  if (found == sums.end() || found->second.kind != task.kind)
    return;
  gpu.duringTask([this, &of = found->second](int64_t calls) {
    while (next < order.size() && order[next].kind == Issue::Sum &&
           order[next].stage == of.unit->stage->id &&
           of.order[static_cast<size_t>(order[next].bucket)].calls <= calls)
      issueSum(order[next++], gpu.record(Queue::Compute));
  });
}

void StreamTraffic::before(const Task &task) {
  issueMessages();
  ++next; // the task itself
  sumDuring(task);
  for (int id : edges[task.stage].into(task.kind)) {
    const PipecRegion to = plan.edges[id].backward ? PIPEC_GRAD_IN : PIPEC_IN;
    gpu.wait(Queue::Compute, arrived[{id, task.slot[to]}]);
  }
  for (int id : edges[task.stage].outOf(task.kind)) {
    const PipecRegion from = plan::regionNamed(plan.edges[id].from_region);
    gpu.wait(Queue::Compute, left[{task.stage, from, task.slot[from]}]);
  }
}

void StreamTraffic::after(const Task &task) {
  const cuda::Event done = gpu.record(Queue::Compute);
  for (int id : edges[task.stage].outOf(task.kind)) {
    const PipecRegion from = plan::regionNamed(plan.edges[id].from_region);
    made[{task.stage, from, task.slot[from]}] = done;
  }
  used[{task.stage, PIPEC_IN, task.slot[PIPEC_IN]}] = done;
  const auto summed = sums.find(plan::weightsStage(plan, task.stage));
  if (task.kind != 'F' && summed != sums.end())
    summed->second.complete = done;
  if (task.kind != 'F')
    used[{task.stage, PIPEC_GRAD_IN, task.slot[PIPEC_GRAD_IN]}] = done;
}

void StreamTraffic::finish() {
  if (!open) // nothing has been queued since
    return;
  open = false;
  issueMessages();
  gpu.wait(Queue::Compute, gpu.record(Queue::Communication));
}

static void neverCalled() {
  throw Failure(Exit::Internal, "a step on a GPU is not taken back");
}
void StreamTraffic::takeBack(const std::vector<int64_t> &) { neverCalled(); }
void StreamTraffic::restart(const std::vector<int64_t> &) { neverCalled(); }
void StreamTraffic::shorten(const plan::Sequence &, int64_t) { neverCalled(); }

} // namespace pipec
