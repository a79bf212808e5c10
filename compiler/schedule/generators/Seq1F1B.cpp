//===- Seq1F1B.cpp - 1F1B on pieces of sequences --------------------------===//
//
// Sun et al., 2024. Each microbatch is cut into q pieces along the sequence;
// stage s runs P-s-2+q forwards of pieces, then one forward and one backward in
// turn. The pieces of a microbatch go backwards last to first, because a piece
// attends to all before it. Stage s holds (P-s-1+q)/q microbatches; the bubble
// is (P-1)(F+B)/q.
//
//   seq1f1b, P = 4, M = 2:
//   0 |F0F1F2F3F4F5F6............B3==F7B2==..B1==..B0==..B7==B6==B5==B4==
//   1 |..F0F1F2F3F4F5........B3==F6B2==F7B1==..B0==..B7==B6==B5==B4==....
//   2 |....F0F1F2F3F4....B3==F5B2==F6B1==F7B0==..B7==B6==B5==B4==........
//   3 |......F0F1F2F3B3==F4B2==F5B1==F6B0==F7B7==B6==B5==B4==............
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/generators/Build.h"

#include <algorithm>

namespace pipec::schedule {

Schedule makeSeq1F1B(const ScheduleRequest &request) {
  int p = request.devices;
  int q = request.slices == 0 ? kDefaultSlices : request.slices;
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
