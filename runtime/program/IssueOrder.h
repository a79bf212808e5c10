//===- IssueOrder.h - what a rank gives its GPU, in order -------*- C++ -*-===//
//
// A GPU does what it was given in order: tasks on one stream, messages on
// another, and a message holds up those behind it until its other end is there.
// So messages need an order in which they can never wait for each other in a
// circle. Here it is that of an execution of all ranks together under the rules
// of checkExecution, every task as long as any other: each rank issues its part
// of that one sequence. The first message of the sequence that is not done has
// all it waits for before it, on both ranks, so it gets done.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/program/Sequence.h"

namespace pipec::plan {

/// Something that a rank's device is given. A task, one message of an edge, or
/// one bucket of a stage's gradients.
struct Issue {
  enum Kind {
    Compute, ///< task `task` of the rank's sequence
    Send,
    Receive,
    Copy, ///< of an edge within the rank
    Sum,  ///< over the replicas of stage `stage`, of its `bucket`th bucket that
          ///< is complete
    Round ///< of a stream: sums over replicas and uses, if there are others
  } kind = Compute;
  int64_t task = 0;
  int stage = 0;
  int64_t bucket = 0;
  int edge = 0;
  int peer = 0;
  int64_t microbatch = 0;
  int fromSlot = 0, toSlot = 0; ///< of the edge's regions
};

/// By rank: one optimizer step of a plan of step programs that checkExecution
/// accepts. Failure(Internal) for another one.
std::vector<std::vector<Issue>> issueOrder(const Plan &plan);

/// The same of microbatches [first, last) of a plan of stream programs.
std::vector<std::vector<Issue>> issueOrder(const Plan &plan, int64_t first,
                                           int64_t last);

} // namespace pipec::plan
