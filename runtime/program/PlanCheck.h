//===- PlanCheck.h - the parts of checkPlan ---------------------*- C++ -*-===//
#pragma once

#include "runtime/program/Plan.h"
#include "support/Failure.h"

namespace pipec::plan {

/// Throws Failure(BadPlan): "plan.json: <path> <what>; ...".
[[noreturn]] void badPlan(const std::string &path, const std::string &what);

/// Bytes of one element, 0 for an unknown type name.
int64_t dtypeBytes(const std::string &dtype);

/// Each rank's actions, one by one: kinds, stages, microbatches, slots in
/// range; every task of every stage exactly once and on the right replica.
void checkPrograms(const Plan &plan);

/// A stream updates its stages at different times: stages that share a weight
/// must have rounds of the same length.
void checkTies(const Plan &plan);

/// All ranks together: runs the programs as the executor does, with transfers
/// that complete only when both sides are ready, and proves that they end, that
/// no slot is overwritten while in use, and that the transfers of an edge
/// between two ranks are sent and received in the same order.
void checkExecution(const Plan &plan);

} // namespace pipec::plan
