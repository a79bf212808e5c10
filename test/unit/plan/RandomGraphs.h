//===- RandomGraphs.h - small cost graphs for property tests ----*- C++ -*-===//
#pragma once

#include "compiler/plan/StepModel.h"

#include <cstdint>

namespace pipec::plan::test {

/// A fixed linear-congruential generator: the same graphs on every machine.
class Random {
public:
  explicit Random(uint64_t seed)
      : state(seed * 2862933555777941757ull + 3037000493ull) {}
  uint64_t next() {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return state >> 33;
  }
  /// Uniform in [low, high].
  int between(int low, int high) {
    return low +
           static_cast<int>(next() % static_cast<uint64_t>(high - low + 1));
  }
  double real(double low, double high) {
    return low +
           (high - low) * static_cast<double>(next() % 1000003) / 1000002.0;
  }

private:
  uint64_t state;
};

/// A chain with random skips, shared weights and shared stashes.
CostGraph randomGraph(Random &random, int nodes);

/// A chain whose nodes all cost `seconds` forward and twice that backward.
CostGraph uniformChain(int nodes, double seconds, int64_t activationBytes,
                       int64_t parameterBytes);

/// One server of so many devices with the given link.
Topology oneServer(int devices, double bandwidth, double latency);

/// A uniform chain of eight nodes in two stages of four, on two devices of
/// their own. Tests change the request as they like.
struct TwoStages {
  TwoStages(CostGraph chain, const char *strategy, int microbatches);
  PlanResult price() const;
  PlanRequest request;
  Split split;
};

} // namespace pipec::plan::test
