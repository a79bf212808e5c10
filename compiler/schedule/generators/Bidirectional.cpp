//===- Bidirectional.cpp - GEMS and Chimera -------------------------------===//
//
// Two copies of the model in opposite device order; even microbatches go down,
// odd ones up. The copies' gradients are summed before the update.
//
// GEMS (Jain et al., SC 2020): one microbatch in flight; the forward of the
// next starts where the backward of the last one has just freed memory.
//
// Chimera (Li and Hoefler, SC 2021): P microbatches at a time, half in each
// direction. With slots of equal length, microbatch i of a direction runs its
// forward at stage s in slot 2i+s and its backward in slot 2i+2P-1-s; the two
// directions never collide because P is even. More microbatches follow in
// units of P, by one of
//   concatenation  each unit 2P slots after the last: perfect when F = B;
//   doubling       a forward slot holds two microbatches, so that it is as long
//                  as a backward of twice the time: no gaps between units, at
//                  up to twice the activations. Halving, the paper's third
//                  way, is doubling on microbatches of half the size.
// The one with the smaller makespan is taken, within the limit when there is
// one.
//
//   gems, P = 4, M = 2:
//   0 |F0..................B0==f1b1==............
//   1 |..F0............B0==f1........b1==........
//   2 |....f0......b0==F1................B1==....
//   3 |......f0b0==F1........................B1==
//
//   chimera, P = 4, M = 4:
//   0 |F0F2..f1b1==f3b3==..B0==....B2==
//   1 |..F0f1F2f3..b1==B0==b3==B2==....
//   2 |..F1f0F3f2..b0==B1==b2==B3==....
//   3 |F1F3..f0b0==f2b2==..B1==....B3==
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/Simulator.h"
#include "compiler/schedule/Verifier.h"
#include "compiler/schedule/generators/Build.h"

#include <algorithm>
#include <tuple>

namespace pipec::schedule {

Schedule makeGems(const ScheduleRequest &request) {
  int p = request.devices;
  requirePairsOfDevices("gems", p);
  Schedule schedule = begin(request, bidirectionalPlacement(p));
  for (int d = 0; d < p; ++d)
    for (int k = 0; k < request.microbatches; ++k)
      for (Kind kind : {Kind::F, Kind::B})
        schedule.order[d].push_back({kind, k % 2 ? p - 1 - d : d, k});
  return schedule;
}

/// Slots of width one task; `per` microbatches of a direction share a slot.
static Schedule chimera(const ScheduleRequest &request, int per) {
  int p = request.devices, m = request.microbatches;
  Schedule schedule = begin(request, bidirectionalPlacement(p));
  struct Placed {
    int slot, kind, microbatch, stage;
  };
  std::vector<std::vector<Placed>> placed(p);
  for (int k = 0; k < m; ++k) {
    bool up = k % 2;
    int i = k / 2;      // number within the direction
    int slot = i / per; // slot number within the direction
    int half = p / 2;   // slots of a direction in a unit
    int unit = slot / half, within = slot % half;
    for (int s = 0; s < p; ++s) {
      int device = up ? p - 1 - s : s;
      int base = 2 * p * unit + 2 * within;
      placed[device].push_back({base + s, 0, k, s});
      placed[device].push_back({base + 2 * p - 1 - s, 1, k, s});
    }
  }
  for (int d = 0; d < p; ++d) {
    std::sort(placed[d].begin(), placed[d].end(),
              [](const Placed &a, const Placed &b) {
                return std::tie(a.slot, a.kind, a.microbatch) <
                       std::tie(b.slot, b.kind, b.microbatch);
              });
    for (const Placed &t : placed[d])
      schedule.order[d].push_back(
          {t.kind ? Kind::B : Kind::F, t.stage, t.microbatch});
  }
  return schedule;
}

Schedule makeChimera(const ScheduleRequest &request) {
  int p = request.devices;
  requirePairsOfDevices("chimera", p);
  Schedule single = chimera(request, 1);
  if (request.microbatches <= p)
    return single;
  Schedule doubled = chimera(request, 2);
  Costs costs = costsFor(single, request);
  VerifyOptions limits;
  limits.costs = &costs;
  if (!verify(doubled, limits).empty())
    return single;
  bool shorter =
      simulate(doubled, costs).makespan < simulate(single, costs).makespan;
  return shorter ? doubled : single;
}

} // namespace pipec::schedule
