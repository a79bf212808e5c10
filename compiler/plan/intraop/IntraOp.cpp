#include "compiler/plan/intraop/IntraOp.h"

#include "compiler/plan/StableOrder.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace pipec::plan {

namespace {

constexpr size_t kMostStates = 256;

uint32_t bit(Layout layout) { return uint32_t(1) << (layout - kPartial); }

/// Calls `visit` with every layout in `bits`.
template <typename Visit> void eachLayout(uint32_t bits, Visit visit) {
  for (Layout layout = kPartial; bits; ++layout, bits >>= 1)
    if (bits & 1)
      visit(layout);
}

} // namespace

IntraOp::IntraOp(const CostGraph &graph, const ShardingGroup &group)
    : graph(graph), sharding(*graph.sharding), group(group) {
  for (size_t node = 0; node < sharding.ops.size(); ++node)
    choices.push_back(choicesOf(sharding, node, group.devices));
  for (size_t w = 0; w < sharding.weights.size(); ++w)
    weightLayouts.push_back(layoutsOf(sharding, w, group.devices));
}

/// What holding a weight so takes of a microbatch: its share of the update, and
/// what its bytes are worth.
double IntraOp::weightSeconds(size_t weight, Layout layout) const {
  const CostWeight &w = graph.weights[weight];
  const double bytes =
      static_cast<double>(w.bytes) / (layout == kWhole ? 1 : group.devices);
  const double update = w.trainable ? group.updateSecondsPerByte : 0;
  return bytes * (update / group.microbatches +
                  group.secondsPerByte * (w.trainable ? group.copies : 1));
}

//===----------------------------------------------------------------------===//
// A sweep
//===----------------------------------------------------------------------===//

IntraOp::Sweep::Sweep(const IntraOp &program, size_t first)
    : program(program), first(first), next(first) {
  now.costs = {0};
  now.steps = {{}};
}

int64_t IntraOp::Sweep::bytesOf(const Tensor &tensor) const {
  return tensor.isWeight ? program.graph.weights[tensor.index].bytes
                         : program.sharding.values[tensor.index].bytes;
}

const std::vector<size_t> &
IntraOp::Sweep::readersOf(const Tensor &tensor) const {
  return tensor.isWeight ? program.sharding.weights[tensor.index].readers
                         : program.sharding.values[tensor.index].readers;
}

/// A tensor that this node is the first to read: a value from before, which is
/// whole, or a weight, of which all layouts are tried.
void IntraOp::Sweep::admit(size_t node, size_t operand) {
  const ShardedOperand &read = program.sharding.ops[node].operands[operand];
  for (const Tensor &t : live)
    if (t.isWeight == read.isWeight && t.index == read.tensor)
      return;
  const size_t width = live.size();
  live.push_back({read.isWeight, read.tensor});
  const std::vector<Layout> whole{kWhole};
  const std::vector<Layout> &layouts =
      read.isWeight ? program.weightLayouts[read.tensor] : whole;
  States wider;
  for (size_t s = 0; s < now.costs.size(); ++s)
    for (Layout layout : layouts) {
      wider.costs.push_back(
          now.costs[s] +
          (read.isWeight ? program.weightSeconds(read.tensor, layout) : 0));
      wider.held.insert(wider.held.end(), now.held.begin() + s * width,
                        now.held.begin() + (s + 1) * width);
      wider.held.push_back({layout, 0, 0});
      wider.steps.push_back(now.steps[s]);
      if (read.isWeight)
        wider.steps.back().weights.push_back(layout);
    }
  if (read.isWeight)
    admitted.back().push_back(read.tensor);
  now = std::move(wider);
}

/// What one more reader of a tensor costs.
double IntraOp::Sweep::read(Held &held, size_t node, const OpSharding &choice,
                            size_t operand) const {
  const ShardedOp &op = program.sharding.ops[node];
  const ShardedOperand &tensor = op.operands[operand];
  const Layout reads = readsAs(op, choice, operand),
               leaves = gradientAs(op, choice, operand);
  int64_t bytes, gradientBytes;
  double times = 1;
  if (tensor.isWeight) {
    const CostWeight &w = program.graph.weights[tensor.tensor];
    bytes = w.bytes, gradientBytes = w.trainable ? w.bytes : 0;
    times = 1 / program.group.microbatches;
  } else {
    const ShardedValue &v = program.sharding.values[tensor.tensor];
    bytes = v.bytes, gradientBytes = v.gradientBytes;
  }
  double seconds = 0;
  if (!(held.read & bit(reads)))
    seconds += reshardSeconds(program.group, bytes, held.layout, reads);
  if (!(held.gradient & bit(leaves)))
    seconds += times * reshardSeconds(program.group, gradientBytes, leaves,
                                      held.layout);
  held.read |= bit(reads);
  held.gradient |= bit(leaves);
  return seconds;
}

/// Appends what becomes of a state with this choice at the node.
void IntraOp::Sweep::extend(size_t node, size_t state, const OpSharding &choice,
                            States &next) const {
  const ShardedOp &op = program.sharding.ops[node];
  const size_t width = live.size() - op.results.size(), at = next.held.size();
  next.held.insert(next.held.end(), now.held.begin() + state * width,
                   now.held.begin() + (state + 1) * width);
  double cost = now.costs[state] +
                ownSeconds(program.graph, node, choice, program.group).total();
  for (size_t k = 0; k < op.operands.size(); ++k)
    for (size_t i = 0; i < width; ++i)
      if (live[i].isWeight == op.operands[k].isWeight &&
          live[i].index == op.operands[k].tensor)
        cost += read(next.held[at + i], node, choice, k);
  for (size_t r = 0; r < op.results.size(); ++r) {
    const Layout layout = makesAs(op, choice, r);
    const ShardedValue &value = program.sharding.values[op.results[r]];
    cost += program.group.secondsPerByte * static_cast<double>(value.bytes) /
            (layout == kWhole ? 1 : program.group.devices);
    next.held.push_back({layout, 0, 0});
  }
  next.costs.push_back(cost);
  next.steps.push_back({static_cast<uint32_t>(now.steps[state].parent), choice,
                        now.steps[state].weights});
}

void IntraOp::Sweep::add(size_t node) {
  const ShardedOp &op = program.sharding.ops[node];
  admitted.emplace_back();
  for (size_t s = 0; s < now.steps.size(); ++s)
    now.steps[s] = {static_cast<uint32_t>(s), {}, {}};
  for (size_t k = 0; k < op.operands.size(); ++k)
    admit(node, k);
  for (size_t value : op.results)
    live.push_back({false, value});
  States next;
  for (size_t s = 0; s < now.costs.size(); ++s)
    for (const OpSharding &choice : program.choices[node])
      extend(node, s, choice, next);
  settle(node, next);
}

/// What `better` may have to pay more than `worse` from here on, whatever
/// comes.
double IntraOp::Sweep::excess(const Held *better, const Held *worse) const {
  double sum = 0;
  for (size_t i = 0; i < live.size(); ++i) {
    const Held &a = better[i], &b = worse[i];
    const Tensor &tensor = live[i];
    const int64_t bytes = bytesOf(tensor),
                  back =
                      tensor.isWeight
                          ? bytes
                          : program.sharding.values[tensor.index].gradientBytes;
    const auto reshard = [&](int64_t n, Layout from, Layout to) {
      return reshardSeconds(program.group, n, from, to);
    };
    if (a.layout != b.layout) {
      const std::vector<size_t> &readers = readersOf(tensor);
      const auto left = readers.end() -
                        std::lower_bound(readers.begin(), readers.end(), next);
      sum +=
          static_cast<double>(left + 1) * (reshard(bytes, a.layout, b.layout) +
                                           reshard(back, b.layout, a.layout));
    }
    eachLayout(b.read & ~a.read,
               [&](Layout l) { sum += reshard(bytes, b.layout, l); });
    eachLayout(b.gradient & ~a.gradient,
               [&](Layout l) { sum += reshard(back, l, b.layout); });
  }
  return sum;
}

/// Forgets tensors that nobody reads any more, and states that are dominated.
void IntraOp::Sweep::settle(size_t node, States &all) {
  const size_t before = live.size();
  std::vector<size_t> kept;
  std::vector<Tensor> stays;
  for (size_t i = 0; i < before; ++i)
    if (!readersOf(live[i]).empty() && readersOf(live[i]).back() > node) {
      kept.push_back(i);
      stays.push_back(live[i]);
    }
  live = std::move(stays);
  next = node + 1;
  std::vector<size_t> order(all.costs.size());
  std::iota(order.begin(), order.end(), size_t(0));
  sortBy(order, [&](size_t s) { return all.costs[s]; });
  States result;
  std::vector<Held> row(kept.size());
  for (size_t s : order) {
    for (size_t i = 0; i < kept.size(); ++i)
      row[i] = all.held[s * before + kept[i]];
    bool isDominated = false;
    for (size_t r = 0; r < result.costs.size() && !isDominated; ++r)
      isDominated =
          result.costs[r] +
              excess(result.held.data() + r * kept.size(), row.data()) <=
          all.costs[s];
    if (isDominated)
      continue;
    if (result.costs.size() == kMostStates) {
      exact = false;
      break;
    }
    result.costs.push_back(all.costs[s]);
    result.held.insert(result.held.end(), row.begin(), row.end());
    result.steps.push_back(all.steps[s]);
  }
  history.push_back(result.steps);
  now = std::move(result);
}

void IntraOp::Sweep::growTo(size_t last) {
  assert(last < program.sharding.ops.size() && "no such node");
  while (next <= last)
    add(next);
}

/// Values that others read are sent whole; their gradients come so.
double IntraOp::Sweep::closing(size_t state) const {
  double seconds = 0;
  for (size_t i = 0; i < live.size(); ++i) {
    const Held &held = now.held[state * live.size() + i];
    if (live[i].isWeight ||
        program.sharding.values[live[i].index].producer < first ||
        (held.read & bit(kWhole)))
      continue;
    seconds +=
        reshardSeconds(program.group, bytesOf(live[i]), held.layout, kWhole);
  }
  return seconds;
}

size_t IntraOp::Sweep::cheapest() const {
  size_t best = 0;
  for (size_t s = 1; s < now.costs.size(); ++s)
    if (now.costs[s] + closing(s) < now.costs[best] + closing(best))
      best = s;
  return best;
}

double IntraOp::Sweep::seconds() const {
  const size_t s = cheapest();
  return now.costs[s] + closing(s);
}

StageSharding IntraOp::Sweep::best() const {
  StageSharding result;
  result.degree = program.group.devices;
  result.nodes.resize(history.size());
  result.weights.assign(program.sharding.weights.size(), kWhole);
  size_t state = cheapest();
  for (size_t i = history.size(); i-- > 0;) {
    const Step &step = history[i][state];
    result.nodes[i] = step.choice;
    for (size_t w = 0; w < admitted[i].size(); ++w)
      result.weights[admitted[i][w]] = step.weights[w];
    state = step.parent;
  }
  return result;
}

} // namespace pipec::plan
