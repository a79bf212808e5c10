//===- HostTraffic.h - traffic over a transport of the host ----*- C++ -*-===//
//
// A receive is posted, in program order, as
// soon as its slot is free; a send starts when its task ends and owns its slot
// until it is done; between stages of one rank the bytes are copied under the
// same rules. checkExecution (runtime/program) proves that this never hangs.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/control/Watch.h"
#include "runtime/exec/RankState.h"
#include "runtime/exec/Traffic.h"

namespace pipec {

class HostTraffic : public Traffic {
public:
  HostTraffic(RankState &state, Transport &transport, Watch &watch);

  void start(const plan::Sequence &sequence, int64_t step,
             int64_t end) override;
  void before(const plan::Task &task) override;
  void after(const plan::Task &task) override;
  void takeBack(const std::vector<int64_t> &before) override;
  void restart(const std::vector<int64_t> &before) override;
  void finish() override;
  void shorten(const plan::Sequence &sequence, int64_t end) override;

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
