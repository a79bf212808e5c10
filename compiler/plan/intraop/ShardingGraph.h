//===- ShardingGraph.h - how operators may be sharded -----------*- C++ -*-===//
//
// Beside a CostGraph: for each of its nodes the factors along which the devices
// of a group may divide it, each device computing a part of every microbatch
// (tensor parallelism; along the samples of a microbatch, data parallelism).
// Data, constants, and what is made of such alone are on every device and not
// mentioned.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pipec::plan {

/// Where a device of a group has a tensor: all of it, or one of equal slices
/// along a dimension, which is then its number.
using Layout = int;
inline constexpr Layout kWhole = -1;
/// Of gradients before they are summed: every device has an addend.
inline constexpr Layout kPartial = -2;

/// An index that an operator runs over. A device with a slice of what has it
/// computes a slice of the results that have it; a partial sum where `sums`.
struct ShardingFactor {
  std::string name;
  int64_t size = 0;          ///< the devices of a group have to divide it
  std::vector<int> operands; ///< dimension of each operand, or kWhole
  std::vector<int> results;  ///< dimension of each result
  bool sums = false;
};

/// A value or a weight that an operator reads.
struct ShardedOperand {
  bool isWeight = false;
  size_t tensor = 0; ///< in ShardingGraph::values or CostGraph::weights
};

struct ShardedOp {
  std::vector<ShardingFactor> factors;
  std::vector<ShardedOperand> operands;
  std::vector<size_t> results; ///< in ShardingGraph::values
};

/// What a node makes and others read, of one microbatch.
struct ShardedValue {
  size_t producer = 0;
  std::vector<int64_t> sizes;
  int64_t bytes = 0, gradientBytes = 0; ///< the latter 0 without a gradient
  std::vector<size_t> readers;          ///< nodes, ascending
};

/// Dimensions of a weight; its bytes are the CostGraph's.
struct ShardedWeight {
  std::vector<int64_t> sizes;
  std::vector<size_t> readers; ///< nodes, ascending
};

struct ShardingGraph {
  std::vector<ShardedOp> ops; ///< one a node
  std::vector<ShardedValue> values;
  std::vector<ShardedWeight> weights; ///< one a weight of the CostGraph
};

/// What the devices of a group do with one node.
struct OpSharding {
  int factor = -1;         ///< index into its factors; -1: all do all of it
  Layout scatter = kWhole; ///< of a sum: the dimension along which it stays
                           ///< divided, rather than on every device
  bool operator==(const OpSharding &) const = default;
};

/// What the devices of every replica of a stage do.
struct StageSharding {
  int degree = 1;                ///< devices in a group
  std::vector<OpSharding> nodes; ///< of the stage, in order
  std::vector<Layout> weights;   ///< of all weights; kWhole where not read
  bool isExact = true;           ///< the search has shown that none are better
  bool isSharded() const { return degree > 1; }
  bool operator==(const StageSharding &) const = default;
};

} // namespace pipec::plan
