//===- ReplicaSum.cpp - gradients summed over replicas --------------------===//
#include "runtime/exec/ReplicaSum.h"
#include "runtime/program/Memory.h"
#include "runtime/transport/Transport.h"

#include <algorithm>

namespace pipec {

Span pieceOf(int64_t total, int parties, int owner, int64_t index,
             int64_t most) {
  const int64_t slice = plan::sliceBytes(total, parties);
  const int64_t begin = std::min(total, owner * slice),
                end = std::min(total, begin + slice);
  const int64_t first = std::min(end, begin + index * most);
  return {first, std::min(most, end - first)};
}

void ReplicaSum::run(const StageUnit &unit, Span span, int64_t step) {
  const int replicas = unit.replicas(), me = unit.replica;
  if (replicas < 2 || span.length == 0)
    return;
  const std::vector<int> &ranks = unit.stage->ranks;
  const int tag = kTagReduce + unit.stage->id;
  char *const data = unit.memory.at(PIPEC_GRADIENTS) + span.begin;
  const int64_t slice = plan::sliceBytes(span.length, replicas);
  const int64_t most = plan::pieceBytes(state.plan);
  const int64_t room = std::min(slice, most);
  const char *const what = "waiting to sum gradients over replicas";

  for (int64_t piece = 0; piece * most < slice; ++piece) {
    const Span mine = pieceOf(span.length, replicas, me, piece, most);
    sources.clear();
    for (int q = 0, place = 0; q < replicas; ++q) {
      if (q == me) {
        sources.push_back(floats(data + mine.begin));
        continue;
      }
      char *space = state.scratch + room * place++;
      sources.push_back(floats(space));
      const Span theirs = pieceOf(span.length, replicas, q, piece, most);
      if (mine.length)
        exchange.receive(ranks[q], tag, space, mine.length);
      if (theirs.length)
        exchange.send(ranks[q], tag, data + theirs.begin, theirs.length);
    }
    exchange.run(what, unit.stage->id, step);
    add(floats(data + mine.begin), sources, mine.length / 4);
  }

  const Span mine = pieceOf(span.length, replicas, me, 0, slice);
  for (int q = 0; q < replicas; ++q) {
    const Span theirs = pieceOf(span.length, replicas, q, 0, slice);
    if (q != me && theirs.length)
      exchange.receive(ranks[q], tag, data + theirs.begin, theirs.length);
    if (q != me && mine.length)
      exchange.send(ranks[q], tag, data + mine.begin, mine.length);
  }
  exchange.run(what, unit.stage->id, step);
}

} // namespace pipec
