//===- Traffic.h - what a unit reads and writes ----------------*- C++ -*-===//
#pragma once

#include "compiler/target/fusion/Plan.h"

namespace pipec::fusion {

/// Bytes of memory that a unit must move if whatever it touches twice comes
/// from a cache the second time: a bound from below.
struct Traffic {
  int64_t read = 0, written = 0;
};

Traffic trafficOf(const TaskPlan &plan, const Unit &unit);

/// Bytes of a tensor that lies there: what strides of zero repeat counts once.
int64_t placedBytes(mlir::RankedTensorType type, const Placement &place);

/// How often a kernel goes through each of its rows.
int walksOf(const KernelPlan &kernel);

} // namespace pipec::fusion
