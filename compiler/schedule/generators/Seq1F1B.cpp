//===- Seq1F1B.cpp - 1F1B on pieces of sequences --------------------------===//
//
// Sun et al., 2024. Each microbatch is cut into q pieces along the sequence;
// stage s runs P-s-2+q forwards of pieces, then one forward and one backward in
// turn. The pieces of a microbatch go backwards last to first, because a piece
// attends to all before it. Stage s holds (P-s-1+q)/q microbatches; the bubble
// is (P-1)(F+B)/q.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/generators/Build.h"

#include <algorithm>

namespace pipec::schedule {

Schedule makeSeq1F1B(const ScheduleRequest &request) {
  int p = request.devices;
  int q = request.slices == 1 ? 4 : request.slices;
  require(q >= 1 && q <= 1024, "seq1f1b: slices must be between 1 and 1024");
  int units = request.microbatches * q;
  Schedule schedule = begin(request, linearPlacement(p));
  schedule.microbatches = units;
  schedule.slices = q;
  for (int s = 0; s < p; ++s) {
    auto &order = schedule.order[s];
    int forward = 0;
    auto next = [&] {
      if (forward < units)
        order.push_back({Kind::F, s, forward++});
    };
    for (int i = 0; i < p - s - 2 + q; ++i)
      next();
    for (int unit = 0; unit < units; ++unit) {
      next();
      int piece = q - 1 - unit % q;
      order.push_back({Kind::B, s, unit / q * q + piece});
    }
  }
  return schedule;
}

} // namespace pipec::schedule
