//===- Collectives.cpp - sums over replicas and uses, in fixed order ------===//
#include "runtime/exec/Collectives.h"
#include "runtime/program/Sequence.h"

#include <algorithm>
#include <cstring>

namespace pipec {

using plan::kPieceBytes;

Collectives::Collectives(RankState &state, Transport &transport, Watch &watch)
    : state(state), plan(state.plan), transport(transport), watch(watch) {
  for (plan::Tie &tie : plan::ties(plan))
    if (std::any_of(tie.copies.begin(), tie.copies.end(),
                    [&](auto &copy) { return state.has(copy.first); }))
      ties.push_back(std::move(tie));
  size_t most = plan.ranks.size() + plan.training.microbatches;
  requests.reserve(most), more.reserve(most);
}

void Collectives::wait(Request &request, const char *what, int stage, int peer,
                       int64_t step) {
  Operation operation;
  operation.what = what;
  operation.stage = stage;
  operation.peer = peer;
  operation.step = step;
  watch.wait(transport, request, operation);
}

//===----------------------------------------------------------------------===//
// Replicas
//===----------------------------------------------------------------------===//

namespace {

/// Bytes [begin, begin + length) of the gradients.
struct Span {
  int64_t begin = 0, length = 0;
};

/// Piece `index` of the slice that replica `owner` adds up.
Span pieceOf(int64_t total, int replicas, int owner, int64_t index) {
  const int64_t slice = plan::sliceBytes(total, replicas);
  const int64_t begin = std::min(total, owner * slice),
                end = std::min(total, begin + slice);
  const int64_t first = std::min(end, begin + index * kPieceBytes);
  return {first, std::min(kPieceBytes, end - first)};
}

} // namespace

void Collectives::reduceGradients(StageUnit &unit, int64_t step) {
  const int replicas = unit.replicas(), me = unit.replica;
  const int64_t total = plan::alignUp(unit.memory.bytes(PIPEC_GRADIENTS));
  if (replicas < 2 || total == 0)
    return;
  const std::vector<int> &ranks = unit.stage->ranks;
  const int tag = kTagReduce + unit.stage->id;
  char *const gradients = unit.memory.at(PIPEC_GRADIENTS);
  const int64_t slice = plan::sliceBytes(total, replicas);
  const int64_t room = std::min(slice, kPieceBytes);
  const char *const what = "waiting to sum gradients over replicas";

  for (int64_t piece = 0; piece * kPieceBytes < slice; ++piece) {
    const Span mine = pieceOf(total, replicas, me, piece);
    requests.clear(), more.clear();
    for (int q = 0, place = 0; q < replicas; ++q) {
      if (q == me) {
        requests.push_back(kNoRequest), more.push_back(kNoRequest);
        continue;
      }
      char *space = state.scratch + room * place++;
      const Span theirs = pieceOf(total, replicas, q, piece);
      requests.push_back(
          mine.length ? transport.receive(ranks[q], tag, space, mine.length)
                      : kNoRequest);
      more.push_back(theirs.length ? transport.send(ranks[q], tag,
                                                    gradients + theirs.begin,
                                                    theirs.length)
                                   : kNoRequest);
    }
    for (int q = 0; q < replicas; ++q)
      wait(requests[q], what, unit.stage->id, ranks[q], step);
    float *const own = floats(gradients + mine.begin);
    auto source = [&](int q) {
      return q == me ? own
                     : floats(state.scratch + room * (q < me ? q : q - 1));
    };
    const int64_t count = mine.length / 4;
    if (me == 0) {
      for (int q = 1; q < replicas; ++q) {
        const float *from = source(q);
        for (int64_t i = 0; i < count; ++i)
          own[i] += from[i];
      }
    } else { // 0 + 1 + ... in that order: the sum grows in replica 0's piece
      float *sum = source(0);
      for (int q = 1; q < replicas; ++q) {
        const float *from = source(q);
        for (int64_t i = 0; i < count; ++i)
          sum[i] += from[i];
      }
      std::memcpy(own, sum, static_cast<size_t>(mine.length));
    }
    for (int q = 0; q < replicas; ++q)
      wait(more[q], what, unit.stage->id, ranks[q], step);
  }

  requests.clear(), more.clear();
  auto sliceOf = [&](int q) {
    const int64_t begin = std::min(total, q * slice);
    return Span{begin, std::min(total, begin + slice) - begin};
  };
  for (int q = 0; q < replicas; ++q) {
    const Span theirs = sliceOf(q), mine = sliceOf(me);
    requests.push_back(q != me && theirs.length
                           ? transport.receive(ranks[q], tag,
                                               gradients + theirs.begin,
                                               theirs.length)
                           : kNoRequest);
    more.push_back(
        q != me && mine.length
            ? transport.send(ranks[q], tag, gradients + mine.begin, mine.length)
            : kNoRequest);
  }
  for (int q = 0; q < replicas; ++q) {
    wait(requests[q], what, unit.stage->id, ranks[q], step);
    wait(more[q], what, unit.stage->id, ranks[q], step);
  }
}

void Collectives::shareStats(StageUnit &unit, int64_t step) {
  const int replicas = unit.replicas();
  const int64_t bytes = unit.memory.bytes(PIPEC_STATS);
  if (replicas < 2 || !unit.stage->tracks || bytes == 0)
    return;
  requests.clear();
  for (int k = 0; k < plan.training.microbatches; ++k) {
    char *row = unit.memory.at(PIPEC_STATS, k);
    const int owner = plan::rankOf(*unit.stage, k);
    for (int rank : unit.stage->ranks) {
      if (rank == state.rank || (owner != state.rank && owner != rank))
        continue;
      if (owner == state.rank)
        requests.push_back(transport.send(rank, kTagStats, row, bytes));
      else
        requests.push_back(transport.receive(owner, kTagStats, row, bytes));
    }
  }
  for (Request &request : requests)
    wait(request, "waiting to share batch statistics", unit.stage->id, -1,
         step);
}

void Collectives::roundStats(StageUnit &unit, const char *mine, int present,
                             int64_t step,
                             const std::function<void(const char *)> &use) {
  const int64_t bytes = unit.memory.bytes(PIPEC_STATS);
  const int64_t room = plan::alignUp(bytes);
  const std::vector<int> &ranks = unit.stage->ranks;
  requests.clear();
  for (int q = 0, place = 0; q < unit.replicas(); ++q) {
    if (q == unit.replica)
      continue;
    char *row = state.scratch + room * place++;
    if (mine)
      requests.push_back(transport.send(ranks[q], kTagStats, mine, bytes));
    if (q < present)
      requests.push_back(transport.receive(ranks[q], kTagStats, row, bytes));
  }
  for (Request &request : requests)
    wait(request, "waiting to share batch statistics", unit.stage->id, -1,
         step);
  for (int q = 0; q < present; ++q)
    use(q == unit.replica
            ? mine
            : state.scratch + room * (q < unit.replica ? q : q - 1));
}

//===----------------------------------------------------------------------===//
// Uses of a tied weight
//===----------------------------------------------------------------------===//

void Collectives::foldTies(int64_t step) {
  for (const plan::Tie &tie : ties) {
    if (tie.copies.size() > 1) {
      for (int64_t offset = 0; offset < tie.bytes; offset += kPieceBytes) {
        const int64_t bytes = std::min(kPieceBytes, tie.bytes - offset);
        foldPiece(tie, offset, bytes, step);
        handOut(tie, offset, bytes, step);
      }
      continue;
    }
    // All uses on one stage: every replica adds its own.
    char *gradients =
        state.unit(tie.copies[0].first).memory.at(PIPEC_GRADIENTS);
    float *total = floats(gradients + tie.copies[0].second);
    for (int64_t i = 0; i < tie.bytes / 4; ++i) {
      float sum = floats(gradients + tie.uses[0].offset)[i];
      for (size_t use = 1; use < tie.uses.size(); ++use)
        sum += floats(gradients + tie.uses[use].offset)[i];
      total[i] = sum;
    }
  }
}

/// The partial sum travels through the stages in the order of the uses; of a
/// stage's replicas, which hold the same bits, the first takes part.
void Collectives::foldPiece(const plan::Tie &tie, int64_t offset, int64_t bytes,
                            int64_t step) {
  auto lead = [&](size_t use) {
    return plan.stages[tie.uses[use].stage].ranks[0];
  };
  float *const sum = floats(state.scratch);
  for (size_t use = 0; use < tie.uses.size(); ++use) {
    if (lead(use) != state.rank)
      continue;
    const int stage = tie.uses[use].stage;
    const char *mine = state.unit(stage).memory.at(PIPEC_GRADIENTS) +
                       tie.uses[use].offset + offset;
    if (use == 0) {
      std::memcpy(sum, mine, static_cast<size_t>(bytes));
    } else {
      if (lead(use - 1) != state.rank) {
        Request request = transport.receive(lead(use - 1), kTagTie, sum, bytes);
        wait(request, "waiting to sum a shared weight's gradient", stage,
             lead(use - 1), step);
      }
      for (int64_t i = 0; i < bytes / 4; ++i)
        sum[i] += reinterpret_cast<const float *>(mine)[i];
    }
    if (use + 1 < tie.uses.size() && lead(use + 1) != state.rank) {
      Request request = transport.send(lead(use + 1), kTagTie, sum, bytes);
      wait(request, "waiting to sum a shared weight's gradient", stage,
           lead(use + 1), step);
    }
  }
}

/// The total goes from where it was completed to every copy.
void Collectives::handOut(const plan::Tie &tie, int64_t offset, int64_t bytes,
                          int64_t step) {
  const char *const what = "waiting for a shared weight's gradient";
  const int source = plan.stages[tie.uses.back().stage].ranks[0];
  requests.clear();
  for (auto [stage, place] : tie.copies)
    for (int rank : plan.stages[stage].ranks) {
      if (rank != state.rank && source != state.rank)
        continue;
      if (rank != state.rank) {
        requests.push_back(transport.send(rank, kTagTie, state.scratch, bytes));
        continue;
      }
      char *target =
          state.unit(stage).memory.at(PIPEC_GRADIENTS) + place + offset;
      if (source == state.rank)
        std::memcpy(target, state.scratch, static_cast<size_t>(bytes));
      else
        requests.push_back(transport.receive(source, kTagTie, target, bytes));
    }
  for (Request &request : requests)
    wait(request, what, tie.copies[0].first, source, step);
}

} // namespace pipec
