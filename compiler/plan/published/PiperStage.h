//===- PiperStage.h - the cheapest way to run one stage ---------*- C++ -*-===//
#pragma once

#include "compiler/plan/published/PiperGraph.h"

#include <unordered_map>
#include <vector>

namespace pipec::published {

/// A set of nodes on t-way tensor-parallel devices: for y microbatches in
/// flight, which variant each node takes so that memory fits and time is least
/// (a knapsack over what plainer variants can be given up).
class PiperStage {
public:
  /// `member[v]` says which nodes; `feasible()` is false when some node has no
  /// variant for the degree.
  PiperStage(const PiperGraph &graph, const std::vector<int> &nodes,
             const std::vector<char> &member, int degree, double memory);

  bool feasible() const { return possible; }
  void setMemory(double bytes) {
    memory = bytes;
    known.clear();
  }
  /// Seconds of compute and cut traffic of one microbatch on one replica,
  /// before division by the replicas; inf when nothing fits. Remembered.
  double seconds(int inFlight);
  /// A lower bound of it: variants may be mixed within a node.
  double fractionalSeconds(int inFlight) const;
  double fastest() const { return fastestSeconds; }
  /// Bytes of weights whose gradients replicas exchange.
  double weights() const { return weightBytes; }
  /// The most microbatches in flight that any choice of variants can hold.
  int mostInFlight(int cap) const;
  /// The choice behind seconds(inFlight): variant index of every node.
  std::vector<int> choose(int inFlight) const;
  /// Least bytes that any choice needs.
  double leastBytes(int inFlight) const;

private:
  struct Option {
    int node;     ///< index into `nodes`
    int variant;  ///< index into the node's variants
    double extra; ///< seconds more than the fastest
    double savedPerMicrobatch, savedFixed;
    double saved(int y) const { return savedPerMicrobatch * y + savedFixed; }
  };
  double excess(int inFlight) const {
    return usedPerMicrobatch * inFlight + usedFixed - memory;
  }
  double solve(int inFlight, std::vector<int> *choice) const;
  std::vector<const Option *> byValue(int inFlight) const;

  size_t count;
  double memory;
  bool possible = true;
  double fastestSeconds = 0, weightBytes = 0, usedPerMicrobatch = 0,
         usedFixed = 0;
  std::vector<int> fastestVariant;
  std::vector<Option> options;
  std::unordered_map<int, double> known;
};

} // namespace pipec::published
