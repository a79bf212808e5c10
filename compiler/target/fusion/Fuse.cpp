//===- Fuse.cpp - which ops become one kernel -----------------------------===//
//
// Starts with a group for each op and unites groups while the result is one
// loop nest and nothing outside must run between their parts: first along the
// values that flow between them, rows that are reduced before others, as a
// loss's logits before what is one number a row, then where they read the same
// tensor.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/fusion/Overlaps.h"
#include "compiler/target/fusion/Plan.h"
#include "dialects/pipe/Pipe.h"

#include <numeric>
#include <set>

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;
using nn::tensorType;

namespace {
/// What must run before what: a node is a group or any other op that is not a
/// view.
class Order {
public:
  explicit Order(func::FuncOp func) {
    for (Operation &op : func.getBody().front())
      if (!isView(&op)) {
        nodeOf[&op] = next.size();
        next.emplace_back();
      }
    for (auto [op, node] : nodeOf)
      for (Value result : op->getResults())
        link(node, result);
    linkMemory(func);
    parent.resize(next.size());
    std::iota(parent.begin(), parent.end(), 0);
    rank();
  }

  int node(Operation *op) { return find(nodeOf.lookup(op)); }

  /// Whether something else must run between the two, whichever is first.
  bool isSeparated(int a, int b) { return reaches(a, b) || reaches(b, a); }

  /// For two that are not separated. What lies between them in the order and
  /// depends on the first goes behind both, all else before.
  void unite(int a, int b) {
    a = find(a);
    b = find(b);
    const int first = std::min(position[a], position[b]);
    const int last = std::max(position[a], position[b]);
    llvm::SmallDenseSet<int> later = reachable(ordered[first], last);
    parent[b] = a;
    llvm::append_range(next[a], next[b]);
    next[b].clear();
    for (int &s : next[a])
      s = find(s);
    llvm::sort(next[a]);
    next[a].erase(llvm::unique(next[a]), next[a].end());
    llvm::erase(next[a], a);
    SmallVector<int> before, behind;
    for (int i = first; i <= last; ++i)
      if (ordered[i] >= 0 && ordered[i] != a && ordered[i] != b)
        (later.contains(ordered[i]) ? behind : before).push_back(ordered[i]);
    int at = first;
    const auto put = [&](int node) {
      position[node] = at;
      ordered[at++] = node;
    };
    llvm::for_each(before, put);
    put(a);
    llvm::for_each(behind, put);
    while (at <= last)
      ordered[at++] = -1;
  }

private:
  int find(int node) {
    while (parent[node] != node)
      node = parent[node] = parent[parent[node]];
    return node;
  }

  void link(int node, Value value) {
    for (Operation *user : value.getUsers()) {
      if (isView(user))
        link(node, user->getResult(0));
      else
        next[node].push_back(nodeOf.lookup(user));
    }
  }

  /// Who reads a place before it is stored runs first; who loads it afterwards,
  /// later.
  void linkMemory(func::FuncOp func) {
    SmallVector<Operation *> loads;
    for (auto load : func.getOps<pipe::LoadOp>())
      loads.push_back(load);
    const Overlaps loaded(loads);
    for (auto store : func.getOps<pipe::StoreOp>())
      for (Operation *load : loaded.with(store)) {
        int stored = nodeOf.lookup(store), read = nodeOf.lookup(load);
        if (store->isBeforeInBlock(load))
          next[stored].push_back(read);
        else
          for (int reader : SmallVector<int>(next[read]))
            if (reader != stored)
              next[reader].push_back(stored);
      }
  }

  /// Positions of the nodes in one order of execution.
  void rank() {
    std::vector<int> missing(next.size(), 0), ready;
    for (size_t i = 0; i < next.size(); ++i) {
      llvm::sort(next[i]);
      next[i].erase(llvm::unique(next[i]), next[i].end());
      llvm::erase(next[i], static_cast<int>(i));
      for (int s : next[i])
        ++missing[s];
    }
    for (size_t i = 0; i < next.size(); ++i)
      if (!missing[i])
        ready.push_back(i);
    position.assign(next.size(), 0);
    while (!ready.empty()) {
      int node = ready.back();
      ready.pop_back();
      position[node] = ordered.size();
      ordered.push_back(node);
      for (int s : next[node])
        if (--missing[s] == 0)
          ready.push_back(s);
    }
  }

  /// The nodes before position `end` that depend on `from`, which is not one.
  llvm::SmallDenseSet<int> reachable(int from, int end) {
    llvm::SmallDenseSet<int> seen;
    SmallVector<int> stack{from};
    while (!stack.empty())
      for (int s : next[stack.pop_back_val()])
        if (s = find(s);
            s != from && position[s] < end && seen.insert(s).second)
          stack.push_back(s);
    return seen;
  }

  /// A way from `from` to `to` over a third node.
  bool reaches(int from, int to) {
    if (position[from] > position[to])
      return false;
    for (int node : reachable(from, position[to]))
      for (int s : next[node])
        if (find(s) == to)
          return true;
    return false;
  }

  llvm::MapVector<Operation *, int> nodeOf;
  std::vector<SmallVector<int>> next;
  /// Who stands for a node; its place in the order; who has a place, or -1.
  std::vector<int> parent, position, ordered;
};

/// More than this many tensors in one loop no longer run faster together.
constexpr size_t kMostStreams = 40;
constexpr size_t kMostOps = 240;
/// Each function becomes some forty instructions. The time to compile a kernel
/// grows faster than their number; that of a step does not mind one more
/// tensor in so many.
constexpr int64_t kMostFunctions = 60;

int64_t functions(const Group &group) {
  return llvm::count_if(group.ops,
                        llvm::IsaPred<nn::ExpOp, nn::LogOp, nn::Log1pOp,
                                      nn::TanhOp, nn::ErfOp, nn::SigmoidOp>);
}

class Fuser {
public:
  Fuser(func::FuncOp func) : func(func), order(func) {
    for (Operation &op : func.getBody().front())
      if (isGenerated(&op)) {
        groupOf[&op] = groups.size();
        groups.push_back(Group::ofOp(&op));
      }
    changes.resize(groups.size());
  }

  std::vector<Group> run() {
    for (int64_t elements : rowSizes())
      while (uniteAlong(elements))
        ;
    bool changed = true;
    while (changed) {
      changed = uniteAlong();
      if (!changed)
        changed = uniteReaders();
      if (!changed)
        changed = uniteScalars();
    }
    std::vector<Group> result;
    for (Group &group : groups)
      if (!group.ops.empty())
        result.push_back(std::move(group));
    llvm::sort(result, [](const Group &a, const Group &b) {
      return a.ops.front()->isBeforeInBlock(b.ops.front());
    });
    return result;
  }

private:
  /// The elements of what is reduced to a number a row, largest first.
  std::set<int64_t, std::greater<>> rowSizes() {
    std::set<int64_t, std::greater<>> sizes;
    for (nn::ReduceOp op : func.getBody().front().getOps<nn::ReduceOp>())
      if (const int64_t last = tensorType(op.getX()).getRank() - 1;
          llvm::is_contained(op.getAxes(), last) &&
          !llvm::is_contained(op.getAxes(), 0))
        sizes.insert(tensorType(op.getX()).getNumElements());
    return sizes;
  }

  /// Unites each op with those that make what it reads, where that has so many
  /// elements.
  bool uniteAlong(std::optional<int64_t> elements = {}) {
    bool changed = false;
    for (Operation &op : func.getBody().front())
      if (groupOf.contains(&op))
        for (Value operand : op.getOperands()) {
          auto source = groupOf.find(viewBase(operand).getDefiningOp());
          if (source != groupOf.end() &&
              (!elements || tensorType(operand).getNumElements() == *elements))
            changed |= tryUnite(source->second, groupOf[&op]);
        }
    return changed;
  }

  /// Groups that read one tensor, in program order.
  bool uniteReaders() {
    bool changed = false;
    for (Operation &op : func.getBody().front())
      for (Value result : op.getResults()) {
        if (isImmediate(result))
          continue;
        SmallVector<Operation *> readers;
        collectReaders(result, readers);
        llvm::sort(readers, [](Operation *a, Operation *b) {
          return a->isBeforeInBlock(b);
        });
        for (size_t i = 1; i < readers.size(); ++i)
          for (size_t j = 0; j < i; ++j)
            changed |= tryUnite(groupOf[readers[j]], groupOf[readers[i]]);
      }
    return changed;
  }

  bool uniteScalars() {
    bool changed = false;
    int first = -1;
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].ops.empty() || !groups[i].extents.empty())
        continue;
      if (first >= 0 && tryUnite(first, i))
        changed = true;
      else
        first = i;
    }
    return changed;
  }

  void collectReaders(Value value, SmallVectorImpl<Operation *> &readers) {
    for (Operation *user : value.getUsers()) {
      if (groupOf.contains(user) && !llvm::is_contained(readers, user))
        readers.push_back(user);
    }
  }

  bool tryUnite(int a, int b) {
    if (a == b || !refused.insert({stamp(a), stamp(b)}).second)
      return false;
    int nodeA = order.node(groups[a].ops.front());
    int nodeB = order.node(groups[b].ops.front());
    if (order.isSeparated(nodeA, nodeB))
      return false;
    std::optional<Group> both = unite(groups[a], groups[b]);
    if (!both || both->ops.size() > kMostOps ||
        functions(*both) > kMostFunctions ||
        both->maps.size() - both->ops.size() > kMostStreams || !nestOf(*both))
      return false;
    order.unite(nodeA, nodeB);
    int into = std::min(a, b), from = std::max(a, b);
    for (Operation *op : groups[from].ops)
      groupOf[op] = into;
    groups[into] = std::move(*both);
    groups[from] = Group();
    ++changes[into];
    return true;
  }

  /// Names a group until it changes.
  std::pair<int, int> stamp(int group) { return {group, changes[group]}; }

  func::FuncOp func;
  Order order;
  std::vector<Group> groups;
  llvm::DenseMap<Operation *, int> groupOf;
  std::vector<int> changes;
  llvm::DenseSet<std::pair<std::pair<int, int>, std::pair<int, int>>> refused;
};
} // namespace

std::vector<Group> fusion::formGroups(func::FuncOp func,
                                      const PlanOptions &options) {
  if (options.fuse)
    return Fuser(func).run();
  std::vector<Group> groups;
  for (Operation &op : func.getBody().front())
    if (isGenerated(&op))
      groups.push_back(Group::ofOp(&op));
  return groups;
}
