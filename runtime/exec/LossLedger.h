//===- LossLedger.h - the losses of a run, at rank 0 ------------*- C++ -*-===//
#pragma once

#include "runtime/control/Watch.h"
#include "runtime/data/DataSource.h"
#include "runtime/program/Plan.h"

#include <deque>
#include <functional>
#include <map>

namespace pipec {

/// Losses of a step's microbatches, in their order.
using Losses = std::vector<float>;

/// The loss of several microbatches: the mean, in double, in their order.
double meanLoss(const Losses &losses);

/// The loss of every microbatch travels to rank 0.
class LossLedger {
public:
  /// `done(step, losses)` is called at rank 0 for every step, in order,
  /// beginning with `firstStep`. `folder`: the plan's.
  LossLedger(const plan::Plan &plan, const std::string &folder,
             const DataSource &data, Transport &transport, Watch &watch,
             int64_t firstStep,
             std::function<void(int64_t, const Losses &)> done);

  /// Where the loss is computed: sends it to rank 0. Throws
  /// Failure(BadNumbers) when it is not finite, which names NaN in the data and
  /// in the weights that training begins with.
  void record(int64_t step, int64_t microbatch, float loss);

  /// Rank 0: takes what has arrived. Others: lets go of what has been sent.
  void poll();

  /// Returns when rank 0 has the losses of all steps before `step`.
  void waitFor(int64_t step);

  /// Ends the transfers. All steps must have been waited for.
  void close();

private:
  struct Message {
    int64_t step, microbatch;
    float loss;
  };
  struct Source { ///< a rank that computes losses, seen from rank 0
    int rank;
    Message message;
    Request request = kNoRequest;
  };
  struct Outgoing {
    Message message;
    Request request = kNoRequest;
  };
  void take(const Message &message);

  const plan::Plan &plan;
  const std::string &folder;
  const DataSource &data;
  Transport &transport;
  Watch &watch;
  int64_t next; ///< the step whose losses are not complete
  std::function<void(int64_t, const Losses &)> done;
  std::deque<Source> sources;
  std::deque<Outgoing> outgoing;
  struct Partial {
    Losses losses;
    int missing;
  };
  std::map<int64_t, Partial> partial;
};

} // namespace pipec
