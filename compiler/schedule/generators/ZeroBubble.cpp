//===- ZeroBubble.cpp - the handcrafted ZB-H1, ZB-H2 and ZB-V -------------===//
//
// Qi et al., ICLR 2024. The input gradient I goes on at once, the weight
// gradient W waits for a gap. ZB-H1 keeps 1F1B's warm-up of P-1-r forwards and
// delays W by r backwards: bubble (P-1)(F+I-W), memory of P microbatches. ZB-H2
// doubles both: span bubble (P-1)(F+I-2W), memory of 2P-1; it has no bubble
// when F = I = W, M >= 2P-1 and the optimizer step needs no barrier.
//
// ZB-V places two stages per device as a V, so that the last stage is on the
// first device: no span bubble at equal times for M >= 2P at 1F1B's memory.
//
//   zb-h1, P = 4, M = 6:
//   0 |F0F1F2F3......I0W0F4I1W1F5I2W2I3W3I4W4I5W5
//   1 |..F0F1F2....I0F3I1W0F4I2W1F5I3W2I4W3I5W4W5
//   2 |....F0F1..I0F2I1F3I2W0F4I3W1F5I4W2I5W3W4W5
//   3 |......F0I0F1I1F2I2F3I3W0F4I4W1F5I5W2W3W4W5
//
//   zb-h2, P = 4, M = 8:
//   0 |F0F1F2F3F4F5F6I0W0F7I1W1I2W2I3W3I4W4I5W5I6W6I7W7......
//   1 |..F0F1F2F3F4I0F5I1F6I2W0F7I3W1I4W2I5W3I6W4I7W5W6W7....
//   2 |....F0F1F2I0F3I1F4I2F5I3F6I4W0F7I5W1I6W2I7W3W4W5W6W7..
//   3 |......F0I0F1I1F2I2F3I3F4I4F5I5F6I6W0F7I7W1W2W3W4W5W6W7
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/generators/Build.h"
#include "compiler/schedule/generators/Published.h"

#include <algorithm>

namespace pipec::schedule {

Schedule zbHandcrafted(const ScheduleRequest &request, double factor) {
  int devices = request.devices, m = request.microbatches;
  Schedule schedule = begin(request, linearPlacement(devices));
  for (int r = 0; r < devices; ++r) {
    auto &order = schedule.order[r];
    int forward = 0, weight = 0;
    auto put = [&](Kind kind, int &next) {
      if (next < m)
        order.push_back({kind, r, next++});
    };
    int warmup = static_cast<int>(factor * (devices - 1 - r));
    int delay = static_cast<int>(factor * r);
    while (forward < std::min(warmup, m))
      put(Kind::F, forward);
    for (int i = 0; i < m; ++i) {
      put(Kind::F, forward);
      order.push_back({Kind::I, r, i});
      if (i >= delay)
        put(Kind::W, weight);
    }
    while (weight < m)
      put(Kind::W, weight);
  }
  return schedule;
}

Schedule makeZBH1(const ScheduleRequest &request) {
  return zbHandcrafted(request, 1);
}

Schedule makeZBH2(const ScheduleRequest &request) {
  return zbHandcrafted(request, 2);
}

namespace {

/// The list of device r of ZB-V. Microbatches from M on are left out, so that
/// the same form serves M < 2P-1.
class VList {
public:
  VList(std::vector<Action> &order, int devices, int device, int microbatches)
      : order(order), m(microbatches), stage{device, 2 * devices - 1 - device} {
  }

  void put(Kind kind, int chunk) {
    int k = next[chunk][static_cast<int>(kind)]++;
    if (k < m)
      order.push_back({kind, stage[chunk], k});
  }
  int count(Kind kind, int chunk) const {
    return next[chunk][static_cast<int>(kind)];
  }

private:
  std::vector<Action> &order;
  int m, stage[2];
  int next[2][4] = {};
};

} // namespace

Schedule zbVClosedForm(const ScheduleRequest &request) {
  int p = request.devices, m = request.microbatches;
  int n = std::max(m, 2 * p - 1);
  Schedule schedule = begin(request, zigzagPlacement(p, 2));
  for (int r = 0; r < p; ++r) {
    VList list(schedule.order[r], p, r, m);
    auto repeat = [&](int times, auto... tasks) {
      for (int i = 0; i < times; ++i)
        (list.put(tasks.first, tasks.second), ...);
    };
    using T = std::pair<Kind, int>;
    const T f0{Kind::F, 0}, f1{Kind::F, 1}, i0{Kind::I, 0}, i1{Kind::I, 1},
        w0{Kind::W, 0}, w1{Kind::W, 1};
    repeat(2 * (p - r) - 1, f0);
    repeat(r, f1, f0);
    repeat(p - r, f1, i1, w1);
    while (list.count(Kind::F, 1) < n) {
      if (list.count(Kind::F, 0) < n)
        list.put(Kind::F, 0);
      repeat(1, i0, w0, f1, i1, w1);
    }
    repeat(r, i0, i1);
    repeat(p - r, i0, w0);
    repeat(n - list.count(Kind::W, 1), w1);
    repeat(n - list.count(Kind::W, 0), w0);
  }
  return schedule;
}

} // namespace pipec::schedule
