//===- ShardableGraphs.h - graphs whose operators can be divided *- C++ -*-===//
#pragma once

#include "RandomGraphs.h"

namespace pipec::plan::test {

/// Products, sums of two values and what runs along rows, on matrices of eight
/// by eight, with weights that some share.
CostGraph randomShardable(Random &random, int nodes);

/// It on one server of so many devices.
PlanRequest requestOf(CostGraph graph, int devices, Random &random);

/// Two products in a row on two servers of four devices, weights of 16 MB.
PlanRequest twoProducts();

} // namespace pipec::plan::test
