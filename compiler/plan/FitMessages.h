//===- FitMessages.h - what taking a message costs --------------*- C++ -*-===//
//
// Between two tasks of a rank lie its own turn and, where the second needs
// bytes of another rank of its machine, what it takes to fetch them:
//
//   gap = turn + take + bytes / bandwidth
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/DeviceModel.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pipec::plan {

/// From the end of a task to the begin of the next, for which a message had
/// come already.
struct MessageGap {
  int64_t bytes = 0;
  double seconds = 0;
};

struct MessageCost {
  double takeSeconds = 0; ///< DeviceModel::takeSeconds
  double bandwidth = 0;   ///< bytes/s of the copy
};

/// The line of least relative errors through the gaps, of at least two sizes;
/// neither part of it is below zero. Failure(Exit::BadModel) without them.
MessageCost fitMessages(const std::vector<MessageGap> &gaps,
                        double turnSeconds);

/// The gaps in a trace of pipec-run (--trace) before tasks of a two-stage
/// pipeline that take `forwardBytes` from the first stage or `backwardBytes`
/// from the second: those alone whose message was sent during the task before,
/// and long enough before its end.
/// The middle of each direction; none where there are few.
/// Failure(Exit::BadModel) for what is no such trace.
std::vector<MessageGap> messageGaps(const std::string &trace,
                                    int64_t forwardBytes,
                                    int64_t backwardBytes);

/// What messages of a few bytes cost, which come with their announcement.
struct NoteCost {
  double takeSeconds = 0; ///< DeviceModel::noteSeconds
  double seenSeconds = DeviceModel().seenSeconds;
};

/// From a trace of such messages: what lies between two tasks, beyond
/// `turnSeconds`, where one had come, and what a task that waits for one begins
/// later than that after it was sent. The middle of all that wait, and between
/// the middles of both directions; neither below 0.
/// Where few have come, or few wait, it is as above. Failure(Exit::BadModel) as
/// before.
NoteCost noteCost(const std::string &trace, double turnSeconds);

/// From the last task of a step to the first of the next on rank 0 of such a
/// trace, less its update and what lies between any two tasks, s; the middle of
/// all. Failure(Exit::BadModel) as before, and where there are fewer than five
/// steps.
double stepEnd(const std::string &trace, double turnSeconds);

} // namespace pipec::plan
