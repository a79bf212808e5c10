#include "compiler/plan/intraop/IntraOp.h"

#include "compiler/plan/StableOrder.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <string>
#include <unordered_set>

namespace pipec::plan {

namespace {

constexpr size_t kMostStates = 256;

/// The ways in which states hold one tensor, as numbers, and what readers from
/// a node on can pay more for one than for another.
class HeldKinds {
public:
  HeldKinds(const TensorCosts &costs, size_t next) : costs(costs), next(next) {}

  char16_t of(const Held &held) {
    if (last < all.size() && all[last] == held)
      return static_cast<char16_t>(last);
    last = static_cast<size_t>(std::find(all.begin(), all.end(), held) -
                               all.begin());
    if (last == all.size()) {
      all.push_back(held);
      for (std::vector<double> &row : known)
        row.resize(all.size(), -1);
      known.emplace_back(all.size(), -1);
    }
    return static_cast<char16_t>(last);
  }
  double excess(size_t a, size_t b) {
    double &result = known[a][b];
    if (result < 0)
      result = costs.excess(all[a], all[b], next);
    return result;
  }

private:
  const TensorCosts &costs;
  size_t next, last = 0;
  std::vector<Held> all;
  std::vector<std::vector<double>> known; ///< -1: not yet
};

} // namespace

IntraOp::IntraOp(const CostGraph &graph, const ShardingGroup &group)
    : graph(graph), sharding(*graph.sharding), group(group) {
  for (size_t node = 0; node < sharding.ops.size(); ++node)
    choices.push_back(choicesOf(sharding, node, group.devices));
  for (size_t w = 0; w < sharding.weights.size(); ++w)
    weightLayouts.push_back(layoutsOf(sharding, w, group.devices));
  for (size_t v = 0; v < sharding.values.size(); ++v)
    values.emplace_back(graph, group, ShardedOperand{false, v}, choices);
  for (size_t w = 0; w < sharding.weights.size(); ++w)
    weights.emplace_back(graph, group, ShardedOperand{true, w}, choices);
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

/// A tensor that this node is the first to read: a value from before, which is
/// whole, or a weight, of which all layouts are tried.
void IntraOp::Sweep::admit(size_t node, size_t operand) {
  const ShardedOperand &read = program.sharding.ops[node].operands[operand];
  for (const ShardedOperand &tensor : live)
    if (isSame(tensor, read))
      return;
  const size_t width = live.size();
  live.push_back(read);
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
      wider.held.push_back({layout});
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
  const TensorCosts &costs = program.costsOf(tensor);
  double seconds = 0;
  if (!(held.read & layoutBit(reads)))
    seconds += costs.read(held.layout, reads);
  held.read |= layoutBit(reads);
  // The gradients of what else the node reads need a weight once more.
  if (tensor.isWeight && program.graph.nodes[node].backwardInputSeconds > 0) {
    if (!(held.again & layoutBit(reads)))
      seconds += costs.read(held.layout, reads);
    held.again |= layoutBit(reads);
  }
  if (!(held.gradient & layoutBit(leaves)))
    seconds += costs.gradient(leaves, held.layout);
  held.gradient |= layoutBit(leaves);
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
      if (isSame(live[i], op.operands[k]))
        cost += read(next.held[at + i], node, choice, k);
  for (size_t r = 0; r < op.results.size(); ++r) {
    const Layout layout = makesAs(op, choice, r);
    const ShardedValue &value = program.sharding.values[op.results[r]];
    cost += program.group.secondsPerByte * static_cast<double>(value.bytes) /
            (layout == kWhole ? 1 : program.group.devices);
    next.held.push_back({layout});
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

/// Forgets tensors that nobody reads any more, and states that are dominated.
void IntraOp::Sweep::settle(size_t node, States &all) {
  const size_t before = live.size();
  std::vector<size_t> kept;
  std::vector<ShardedOperand> stays;
  for (size_t i = 0; i < before; ++i)
    if (program.costsOf(live[i]).isReadAfter(node)) {
      kept.push_back(i);
      stays.push_back(live[i]);
    }
  live = std::move(stays);
  next = node + 1;
  std::vector<size_t> order(all.costs.size());
  std::iota(order.begin(), order.end(), size_t(0));
  sortBy(order, [&](size_t s) { return all.costs[s]; });
  std::vector<HeldKinds> kinds;
  for (const ShardedOperand &tensor : live)
    kinds.emplace_back(program.costsOf(tensor), next);
  States result;
  std::vector<std::u16string> rows; // of kinds, as those of `result`
  std::unordered_set<std::u16string> seen;
  std::vector<size_t> tried; // of `result`, what dominated last first
  std::u16string row(kept.size(), 0);
  for (size_t s : order) {
    for (size_t i = 0; i < kept.size(); ++i)
      row[i] = kinds[i].of(all.held[s * before + kept[i]]);
    // The cheaper state with the same layouts, or what dominates that.
    if (!seen.insert(row).second)
      continue;
    const auto isDominatedBy = [&](size_t r) {
      double least = result.costs[r];
      for (size_t i = kept.size(); i-- > 0 && least <= all.costs[s];)
        least += kinds[i].excess(rows[r][i], row[i]);
      return least <= all.costs[s];
    };
    const auto by = std::find_if(tried.begin(), tried.end(), isDominatedBy);
    if (by != tried.end()) {
      std::rotate(tried.begin(), by, by + 1);
      continue;
    }
    if (result.costs.size() == kMostStates) {
      exact = false;
      break;
    }
    tried.push_back(result.costs.size());
    rows.push_back(row);
    result.costs.push_back(all.costs[s]);
    for (size_t i : kept)
      result.held.push_back(all.held[s * before + i]);
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
        program.sharding.values[live[i].tensor].producer < first ||
        (held.read & layoutBit(kWhole)))
      continue;
    seconds += program.costsOf(live[i]).read(held.layout, kWhole);
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
  result.isExact = exact;
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
