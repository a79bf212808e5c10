#include "compiler/driver/Shardings.h"

#include "dialects/nn/Factors.h"
#include "passes/Graph.h"

#include "llvm/ADT/StringMap.h"
#include <limits>
#include <map>
#include <numeric>

using namespace mlir;
using namespace pipec::nn;

namespace pipec {
namespace {

/// No dimension of the weight, nor the same for all; no plan::Layout.
constexpr int kUnknown = std::numeric_limits<int>::min();

/// A weight that a value is made of: of each dimension of the value that of the
/// weight, plan::kWhole where it repeats it, or kUnknown; and what a number of
/// devices has to divide besides: of [4, 96] seen as [384] there are four
/// slices at most.
struct Origin {
  size_t weight;
  SmallVector<int> dims;
  SmallVector<int64_t> sizes;
  bool operator==(const Origin &) const = default;
};

class Builder {
public:
  Builder(func::FuncOp main, const plan::CostGraph &graph, bool trains)
      : main(main), graph(graph), trains(trains), nodes(modelNodes(main)) {
    for (auto [i, op] : llvm::enumerate(nodes))
      numbers[op] = i;
    for (auto [i, weight] : llvm::enumerate(graph.weights))
      weights[weight.name] = i;
  }

  plan::ShardingGraph run() {
    result.ops.resize(nodes.size());
    result.weights.resize(graph.weights.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      hasWeights.push_back(llvm::any_of(nodes[i]->getOperands(), [&](Value v) {
        Operation *def = v.getDefiningOp();
        auto it = numbers.find(def);
        return def && (it != numbers.end() ? hasWeights[it->second]
                                           : !originsOf(v).empty());
      }));
      if (hasWeights[i])
        addNode(i);
    }
    return std::move(result);
  }

private:
  /// The weights in a value that depends on no input; each value is looked at
  /// once, however many ways lead to it.
  ArrayRef<Origin> originsOf(Value v) {
    Operation *def = v.getDefiningOp();
    if (!def)
      return {};
    if (auto it = origins.find(v); it != origins.end())
      return it->second;
    SmallVector<Origin> found;
    if (auto weight = dyn_cast<WeightOp>(def)) {
      ArrayRef<int64_t> sizes = tensorType(v).getShape();
      Origin origin{weights.at(weight.getParameter().str()), {}, {}};
      llvm::append_range(origin.dims, llvm::seq<int>(0, sizes.size()));
      llvm::append_range(origin.sizes, sizes);
      found.push_back(origin);
    }
    const SmallVector<Factor> factors = factorsOf(def);
    for (auto [k, operand] : llvm::enumerate(def->getOperands()))
      for (const Origin &from : SmallVector<Origin>(originsOf(operand)))
        if (Origin here = through(from, factors, k, tensorType(v).getRank());
            !llvm::is_contained(found, here))
          found.push_back(here);
    return origins[v] = found;
  }

  static Origin through(const Origin &from, ArrayRef<Factor> factors, size_t k,
                        int64_t rank) {
    Origin here{from.weight, SmallVector<int>(rank, kUnknown),
                SmallVector<int64_t>(rank, 1)};
    for (const Factor &f : factors) {
      const int to = f.results[0], at = f.operands[k];
      if (to < 0)
        continue;
      here.dims[to] = at < 0 ? plan::kWhole : from.dims[at];
      here.sizes[to] = at < 0 ? f.size : std::gcd(f.size, from.sizes[at]);
    }
    return here;
  }

  void addNode(size_t i) {
    Operation *op = nodes[i];
    plan::ShardedOp &sharded = result.ops[i];
    const SmallVector<Factor> factors = factorsOf(op);
    for (const Factor &f : factors) {
      plan::ShardingFactor factor{nameOf(f), f.size, {}, {}, f.sums};
      factor.results.assign(f.results.begin(), f.results.end());
      sharded.factors.push_back(factor);
    }
    for (auto [k, v] : llvm::enumerate(op->getOperands())) {
      Operation *def = v.getDefiningOp();
      if (!def)
        continue;
      auto it = numbers.find(def);
      if (it == numbers.end())
        addWeights(i, k, factors);
      else if (hasWeights[it->second])
        addValue(i, k, factors);
    }
    // What would divide a weight in a way that it is not stored in is none.
    llvm::erase_if(sharded.factors, [](const plan::ShardingFactor &f) {
      return llvm::is_contained(f.operands, kUnknown);
    });
    addResults(i);
  }

  static std::string nameOf(const Factor &f) {
    if (f.sums)
      return "sum";
    return "dimension " + std::to_string(f.results[0]);
  }

  void addValue(size_t node, size_t k, ArrayRef<Factor> factors) {
    Value v = nodes[node]->getOperand(k);
    plan::ShardedOp &op = result.ops[node];
    op.operands.push_back({false, values.lookup(v)});
    for (auto [f, factor] : llvm::zip(factors, op.factors))
      factor.operands.push_back(f.operands[k]);
    std::vector<size_t> &readers = result.values[values.lookup(v)].readers;
    if (readers.empty() || readers.back() != node)
      readers.push_back(node);
  }

  void addWeights(size_t node, size_t k, ArrayRef<Factor> factors) {
    plan::ShardedOp &op = result.ops[node];
    for (const Origin &from : originsOf(nodes[node]->getOperand(k))) {
      op.operands.push_back({true, from.weight});
      for (auto [f, factor] : llvm::zip(factors, op.factors)) {
        const int at = f.operands[k];
        factor.operands.push_back(at < 0 ? plan::kWhole : from.dims[at]);
        if (at >= 0)
          factor.size = std::gcd(factor.size, from.sizes[at]);
      }
      std::vector<size_t> &readers = result.weights[from.weight].readers;
      if (readers.empty() || readers.back() != node)
        readers.push_back(node);
    }
  }

  void addResults(size_t node) {
    for (Value v : nodes[node]->getResults()) {
      plan::ShardedValue value;
      value.producer = node;
      ArrayRef<int64_t> sizes = tensorType(v).getShape();
      value.sizes.assign(sizes.begin(), sizes.end());
      value.bytes = byteSize(v.getType());
      value.gradientBytes = trains && isFloat(v) ? value.bytes : 0;
      values[v] = result.values.size();
      result.ops[node].results.push_back(result.values.size());
      result.values.push_back(value);
    }
  }

  func::FuncOp main;
  const plan::CostGraph &graph;
  const bool trains;
  SmallVector<Operation *> nodes;
  llvm::DenseMap<Operation *, size_t> numbers;
  std::map<std::string, size_t> weights;
  std::vector<bool> hasWeights;
  llvm::DenseMap<Value, size_t> values;
  llvm::DenseMap<Value, SmallVector<Origin>> origins;
  plan::ShardingGraph result;
};

/// The shapes of the weights themselves.
void addSizes(func::FuncOp main, const plan::CostGraph &graph,
              plan::ShardingGraph &result) {
  SymbolTable parameters(main->getParentOfType<ModuleOp>());
  for (auto [weight, sharded] : llvm::zip(graph.weights, result.weights)) {
    auto parameter = parameters.lookup<ParameterOp>(weight.name);
    ArrayRef<int64_t> sizes = parameter.getTensorType().getShape();
    sharded.sizes.assign(sizes.begin(), sizes.end());
  }
}

} // namespace

plan::ShardingGraph shardingGraph(func::FuncOp main,
                                  const plan::CostGraph &graph, bool trains) {
  plan::ShardingGraph result = Builder(main, graph, trains).run();
  addSizes(main, graph, result);
  return result;
}

} // namespace pipec
