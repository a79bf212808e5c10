#include "compiler/driver/Shardings.h"

#include "dialects/nn/Factors.h"
#include "passes/Graph.h"

#include "llvm/ADT/StringMap.h"
#include <set>

using namespace mlir;
using namespace pipec::nn;

namespace pipec {
namespace {

/// No dimension of the weight, nor the same for all.
constexpr int kUnknown = -2;

/// A weight that a value is made of: of each dimension of the value that of the
/// weight, plan::kWhole where it repeats it, or kUnknown.
struct Origin {
  size_t weight;
  SmallVector<int> dims;
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
  /// The weights in a value that depends on no input.
  SmallVector<Origin> originsOf(Value v) {
    Operation *def = v.getDefiningOp();
    if (!def)
      return {};
    if (auto weight = dyn_cast<WeightOp>(def)) {
      SmallVector<int> dims;
      for (int d = 0; d < tensorType(v).getRank(); ++d)
        dims.push_back(d);
      return {{weights.at(weight.getParameter().str()), dims}};
    }
    SmallVector<Origin> origins;
    const SmallVector<Factor> factors = factorsOf(def);
    for (auto [k, operand] : llvm::enumerate(def->getOperands()))
      for (const Origin &from : originsOf(operand)) {
        Origin here{from.weight,
                    SmallVector<int>(tensorType(v).getRank(), kUnknown)};
        for (const Factor &f : factors)
          if (f.results[0] >= 0)
            here.dims[f.results[0]] =
                f.operands[k] < 0 ? plan::kWhole : from.dims[f.operands[k]];
        origins.push_back(here);
      }
    return origins;
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
      for (auto [f, factor] : llvm::zip(factors, op.factors))
        factor.operands.push_back(f.operands[k] < 0 ? plan::kWhole
                                                    : from.dims[f.operands[k]]);
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
