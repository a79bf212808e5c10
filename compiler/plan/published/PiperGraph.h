//===- PiperGraph.h - Piper's inputs ----------------------------*- C++ -*-===//
//
// JSON of Tarnawski et al., NeurIPS 2021: for every node and tensor-parallel
// degree one or more ways to run it (plain, with recomputation), each with a
// time per microbatch (s), weights (bytes, for the gradient exchange), memory
// A*y + B with y microbatches in flight (bytes), and bytes to exchange when a
// neighbour lies in another stage.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/Dag.h"

#include <map>
#include <string>
#include <vector>

namespace pipec::published {

struct PiperVariant {
  std::string id;
  double seconds = 0, weights = 0;
  double memoryPerMicrobatch = 0, memoryFixed = 0;
  /// Extra bytes for each incoming and outgoing edge, in the order of
  /// PiperGraph::dag's lists.
  std::vector<double> syncIn, syncOut;
};

struct PiperNode {
  std::string id, name;
  std::map<int, std::vector<PiperVariant>>
      variants; ///< by tensor-parallel degree
};

struct PiperGraph {
  std::vector<PiperNode> nodes;
  Dag dag;
  /// Bytes of each edge, in the order of dag.in and dag.out.
  std::vector<std::vector<double>> bytesIn, bytesOut;
  int devices = 1, microbatches = 1;
  double memory = 0, bandwidth = 0;
};

/// Throws Failure(Exit::BadModel) with `origin` and the reason.
PiperGraph parsePiperGraph(const std::string &json, const std::string &origin);

} // namespace pipec::published
