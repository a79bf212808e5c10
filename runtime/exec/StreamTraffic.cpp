//===- StreamTraffic.cpp - traffic between GPUs ---------------------------===//
#include "runtime/exec/StreamTraffic.h"

namespace pipec {

using plan::Edge;
using plan::Issue;
using plan::Task;
using Queue = cuda::Gpu::Queue;

StreamTraffic::StreamTraffic(RankState &state, cuda::Gpu &gpu)
    : state(state), plan(state.plan), gpu(gpu),
      edges(plan::stageEdges(state.plan)) {
  if (plan.ranks[0].program.kind == "stream")
    throw Failure(Exit::BadPlan,
                  "the plan updates weights within a step, which this "
                  "pipec-run does on CPUs alone; compile with --cpus, or with "
                  "a synchronous strategy");
  order = std::move(plan::issueOrder(plan)[static_cast<size_t>(state.rank)]);
}

void StreamTraffic::start(const plan::Sequence &, int64_t newStep) {
  step = newStep;
  next = 0;
  for (auto *events : {&made, &left, &used})
    events->clear();
  arrived.clear();
  open = true;
  // What the last step left is behind everything.
  gpu.wait(Queue::Communication, gpu.record(Queue::Compute));
}

void StreamTraffic::issueMessages() {
  while (next < order.size() && order[next].kind != Issue::Compute)
    issue(order[next++]);
}

void StreamTraffic::issue(const Issue &message) {
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

void StreamTraffic::before(const Task &task) {
  issueMessages();
  ++next; // the task itself
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
