//===- Traffic.h - a rank's activations and gradients in flight -*- C++ -*-===//
//
// Moves what the plan's edges carry. A receive is posted, in program order, as
// soon as its slot is free; a send starts when its task ends and owns its slot
// until it is done; between stages of one rank the bytes are copied under the
// same rules. checkExecution (runtime/program) proves that this never hangs.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/control/Watch.h"
#include "runtime/exec/RankState.h"
#include "runtime/program/Sequence.h"

namespace pipec {

class Traffic {
public:
  Traffic(RankState &state, Transport &transport, Watch &watch);

  /// Begins a sequence of tasks: posts the first receives. All slots are free.
  void start(const plan::Sequence &sequence, int64_t step);

  /// Waits until the task's data is there and the slots it writes are free.
  void before(const plan::Task &task);

  /// Sends what the task made, frees what it used, posts more receives.
  void after(const plan::Task &task);

  /// The last step's update was refused: this sequence begins again on all
  /// ranks, and `before` messages have come or come over each edge that belong
  /// to what was run in vain. takeBack() must be called before any rank from
  /// which such messages come can know; restart() lets them pass and begins.
  void takeBack(const std::vector<int64_t> &before);
  void restart(const std::vector<int64_t> &before);

  /// Waits until all sends are done.
  void finish();

  /// The sequence ends earlier than it said: takes back the receives of
  /// microbatches from `end` on. `sequence` is the shorter one; what has been
  /// run is a prefix of it.
  void shorten(const plan::Sequence &sequence, int64_t end);

private:
  void post();
  bool claim(const plan::Task &task);
  void receive(int edge, const plan::Task &task);
  void send(int edge, const plan::Task &task);
  void copyIfReady(int edge, int slot);
  void letPass(const std::vector<int64_t> &before);
  bool comesHere(const plan::Edge &edge) const;
  Operation operation(const plan::Edge &edge, bool receiving, int peer,
                      int64_t microbatch) const;
  std::vector<int64_t> &owners(int stage, PipecRegion region) {
    return owner[static_cast<size_t>(stage) * 2 + (region == PIPEC_GRAD_IN)];
  }

  RankState &state;
  const plan::Plan &plan;
  Transport &transport;
  Watch &watch;
  std::vector<plan::StageEdges> edges;

  const plan::Sequence *sequence = nullptr;
  int64_t step = 0;
  int64_t cursor = 0; ///< the task whose receives are to be posted next

  /// By stage and (IN, GRAD_IN): the microbatch that has the slot, or -1.
  std::vector<std::vector<int64_t>> owner;
  /// By edge and slot of its target: the receive under way.
  std::vector<std::vector<Request>> receiving;
  /// By edge: the slots of the receives posted since start(), and how many of
  /// them a restart has left standing.
  std::vector<std::vector<int>> posted;
  std::vector<size_t> standing;
  /// By edge and slot of its source: the send under way, and to whom.
  std::vector<std::vector<Request>> sending;
  /// By edge and slot of its source: the microbatch to copy within the rank.
  std::vector<std::vector<int64_t>> copying;
};

} // namespace pipec
