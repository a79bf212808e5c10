//===- Collectives.cpp - sums over replicas and uses, in fixed order ------===//
#include "runtime/exec/Collectives.h"
#include "runtime/program/Sequence.h"

#include <algorithm>

namespace pipec {

Collectives::Collectives(RankState &state, Transport &transport, Watch &watch)
    : state(state), plan(state.plan),
      exchange(state.device->exchange(transport, watch)),
      replicas(
          state, *exchange,
          [&state](float *to, const std::vector<const float *> &terms,
                   int64_t count) { state.device->sum(to, terms, count); }) {
  for (plan::Tie &tie : plan::ties(plan))
    if (std::any_of(tie.copies.begin(), tie.copies.end(),
                    [&](auto &copy) { return state.has(copy.first); }))
      ties.push_back(std::move(tie));
}

//===----------------------------------------------------------------------===//
// Replicas
//===----------------------------------------------------------------------===//

void Collectives::reduceGradients(StageUnit &unit, int64_t step) {
  replicas.run(unit, {0, plan::alignUp(unit.memory.bytes(PIPEC_GRADIENTS))},
               step);
}

void Collectives::shareStats(StageUnit &unit, int64_t step) {
  const int replicas = unit.replicas();
  const int64_t bytes = unit.memory.bytes(PIPEC_STATS);
  if (replicas < 2 || !unit.stage->tracks || bytes == 0)
    return;
  for (int k = 0; k < plan.training.microbatches; ++k) {
    char *row = unit.memory.at(PIPEC_STATS, k);
    const int owner = plan::rankOf(*unit.stage, k);
    for (int rank : unit.stage->ranks) {
      if (rank == state.rank || (owner != state.rank && owner != rank))
        continue;
      if (owner == state.rank)
        exchange->send(rank, kTagStats, row, bytes);
      else
        exchange->receive(owner, kTagStats, row, bytes);
    }
  }
  exchange->run("waiting to share batch statistics", unit.stage->id, step);
}

void Collectives::roundStats(StageUnit &unit, const char *mine, int present,
                             int64_t step,
                             const std::function<void(const char *)> &use) {
  const int64_t bytes = unit.memory.bytes(PIPEC_STATS);
  const int64_t room = plan::alignUp(bytes);
  const std::vector<int> &ranks = unit.stage->ranks;
  for (int q = 0, place = 0; q < unit.replicas(); ++q) {
    if (q == unit.replica)
      continue;
    char *row = state.scratch + room * place++;
    if (mine)
      exchange->send(ranks[q], kTagStats, mine, bytes);
    if (q < present)
      exchange->receive(ranks[q], kTagStats, row, bytes);
  }
  exchange->run("waiting to share batch statistics", unit.stage->id, step);
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
    if (tie.copies.size() == 1) {
      foldHere(tie);
      continue;
    }
    const std::vector<int> leads = plan::tieLeads(plan, tie);
    const int64_t slice =
        plan::sliceBytes(tie.bytes, static_cast<int>(leads.size()));
    const int64_t most = plan::pieceBytes(plan);
    for (int64_t piece = 0; piece * most < slice; ++piece)
      foldPiece(tie, leads, piece, step);
    handOut(tie, leads, step);
  }
}

/// All uses on one stage: every replica adds its own.
void Collectives::foldHere(const plan::Tie &tie) {
  char *gradients = state.unit(tie.copies[0].first).memory.at(PIPEC_GRADIENTS);
  sources.clear();
  for (const plan::Tie::Use &use : tie.uses)
    sources.push_back(floats(gradients + use.offset));
  state.device->sum(floats(gradients + tie.copies[0].second), sources,
                    tie.bytes / 4);
}

/// The first replicas of the stages add up a slice of the weight each, in the
/// order of the uses. Other replicas hold the same bits and only receive.
void Collectives::foldPiece(const plan::Tie &tie, const std::vector<int> &leads,
                            int64_t piece, int64_t step) {
  const char *const what = "waiting to sum a shared weight's gradient";
  const auto parties = static_cast<int>(leads.size());
  const int64_t most = plan::pieceBytes(plan);
  const int64_t room = std::min(plan::sliceBytes(tie.bytes, parties), most);
  auto leadOf = [&](const plan::Tie::Use &use) {
    return plan.stages[use.stage].ranks[0];
  };
  auto local = [&](const plan::Tie::Use &use) {
    return state.unit(use.stage).memory.at(PIPEC_GRADIENTS) + use.offset;
  };
  Span mine;
  sources.clear();
  for (int party = 0; party < parties; ++party) {
    const Span span = pieceOf(tie.bytes, parties, party, piece, most);
    const bool own = leads[party] == state.rank;
    if (own)
      mine = span;
    char *space = state.scratch;
    for (const plan::Tie::Use &use : tie.uses) {
      const bool here = leadOf(use) == state.rank;
      if (own && here) {
        sources.push_back(floats(local(use) + span.begin));
      } else if (own) {
        if (span.length)
          exchange->receive(leadOf(use), kTagTie, space, span.length);
        sources.push_back(floats(space));
        space += room;
      } else if (here && span.length) {
        exchange->send(leads[party], kTagTie, local(use) + span.begin,
                       span.length);
      }
    }
  }
  exchange->run(what, tie.copies[0].first, step);
  if (!sources.empty())
    state.device->sum(floats(home(tie) + mine.begin), sources, mine.length / 4);
}

/// Where this rank's first copy of the total lies.
char *Collectives::home(const plan::Tie &tie) {
  for (auto [stage, offset] : tie.copies)
    if (state.has(stage))
      return state.unit(stage).memory.at(PIPEC_GRADIENTS) + offset;
  throw Failure(Exit::Internal, "a shared weight has no copy on this rank");
}

/// Every slice of the total goes from who added it up to every copy.
void Collectives::handOut(const plan::Tie &tie, const std::vector<int> &leads,
                          int64_t step) {
  const char *const what = "waiting for a shared weight's gradient";
  const auto parties = static_cast<int>(leads.size());
  const int64_t slice = plan::sliceBytes(tie.bytes, parties);
  for (int party = 0; party < parties; ++party) {
    const int64_t begin = std::min(tie.bytes, party * slice),
                  length = std::min(tie.bytes, begin + slice) - begin;
    const int source = leads[party];
    for (auto [stage, offset] : tie.copies)
      for (int rank : plan.stages[stage].ranks) {
        if (length == 0 || (rank != state.rank && source != state.rank))
          continue;
        if (rank != state.rank) {
          exchange->send(rank, kTagTie, home(tie) + begin, length);
          continue;
        }
        char *target =
            state.unit(stage).memory.at(PIPEC_GRADIENTS) + offset + begin;
        if (source != state.rank)
          exchange->receive(source, kTagTie, target, length);
        else if (target != home(tie) + begin)
          state.device->copy(target, home(tie) + begin, length);
      }
  }
  exchange->run(what, tie.copies[0].first, step);
}

} // namespace pipec
