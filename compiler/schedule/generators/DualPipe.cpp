//===- DualPipe.cpp - DeepSeek-V3's schedules -----------------------------===//
//
// DualPipe runs two pipelines in opposite directions over the same devices,
// each with its own copy of the model and M/2 microbatches. A forward of one
// direction stands next to a backward of the other, so that a runtime can
// overlap the communication of one with the computation of the other. Eight
// steps, counted from the nearer end of the pipeline (q = distance to it, h =
// half the devices); z marks an input gradient whose weight gradient comes
// later:
//
//   1  2(h-q-1) x F0              5  (h-q-1) x (B1, F1, B0)
//   2  (q+1) x (F0, F1)           6  (q+1) x (B1, B0), the second half z
//   3  (h-q-1) x (B1z, W, F1)     7  (h-q-1) x (W, B0z)
//   4  (M/2-P+q+1) x              8  (q+1) x W
//      (F0, B1, F1, B0)
//
// DualPipeV cuts it in half: P devices, two stages each as a V, one copy of the
// model; the same steps with h = P, q = device and M-2P+q+1 repetitions.
//
//   dualpipe, P = 4, M = 8:
//   0 |F0F2F4f1i1w1f3F6b3==f5B0==b5==f7..B2==b7==I4W4I6W6
//   1 |..F0f1F2f3F4b1==f5B0==F6b3==f7B2==b5==B4==i7I6w7W6
//   2 |..F1f0F3f2F5b0==f4B1==F7b2==f6B3==b4==B5==i6I7w6W7
//   3 |F1F3F5f0i0w0f2F7b2==f4B1==b4==f6..B3==b6==I5W5I7W7
//
//   dualpipe-v, P = 4, M = 8:
//   0 |FFFFFFFfiwfiwfiwfFb3fB0b4f.B1b5f.B2b6f.B3b7IWIWIWIW
//   1 |.FFFFFfFfiwfiwfFb2fB0Fb3fB1b4f.B2b5f.B3b6B4iIwIWIWW
//   2 |..FFFfFfFfiwfFb1fB0Fb2fB1Fb3fB2b4f.B3b5B4b6IiIWIwWW
//   3 |...FfFfFfFfFb0fB0Fb1fB1Fb2fB2Fb3fB3b4B4b5B5iIiIwWwW
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/generators/Build.h"

#include <algorithm>
#include <deque>

namespace pipec::schedule {

namespace {

/// One of the two streams of a device: a direction or a half of the V.
struct Stream {
  int stage, firstMicrobatch, stride;
};

class Steps {
public:
  Steps(Schedule &schedule, int device, Stream zero, Stream one)
      : order(schedule.order[device]), pairs(schedule.pairs[device]),
        streams{zero, one} {}

  void run(int h, int q, int middle) {
    for (int i = 0; i < 2 * (h - q - 1); ++i)
      forward(0);
    for (int i = 0; i < q + 1; ++i)
      forward(0), forward(1);
    for (int i = 0; i < h - q - 1; ++i)
      backward(1, true), weight(), forward(1);
    for (int i = 0; i < middle; ++i) {
      // At the turn the first backward belongs to the very forward before it.
      pair(0, 1, i > 0 || q + 1 < h);
      pair(1, 0, true);
    }
    for (int i = 0; i < h - q - 1; ++i)
      backward(1), pair(1, 0, true);
    bool late = false;
    for (int i = 0; i < q + 1; ++i) {
      bool turn = i == (q + 1) / 2;
      late = late || (turn && q % 2 == 1);
      backward(1, late);
      late = late || (turn && q % 2 == 0);
      backward(0, late);
    }
    for (int i = 0; i < h - q - 1; ++i)
      weight(), backward(0, true);
    while (!waiting.empty())
      weight();
  }

private:
  int microbatch(int stream, int count) const {
    return streams[stream].firstMicrobatch + count * streams[stream].stride;
  }
  void forward(int stream) {
    order.push_back({Kind::F, streams[stream].stage,
                     microbatch(stream, forwards[stream]++)});
  }
  void backward(int stream, bool late = false) {
    Action a{late ? Kind::I : Kind::B, streams[stream].stage,
             microbatch(stream, backwards[stream]++)};
    order.push_back(a);
    if (late)
      waiting.push_back({Kind::W, a.stage, a.microbatch});
  }
  void pair(int ahead, int back, bool together) {
    if (together)
      pairs.push_back(static_cast<int>(order.size()));
    forward(ahead);
    backward(back);
  }
  void weight() {
    order.push_back(waiting.front());
    waiting.pop_front();
  }

  std::vector<Action> &order;
  std::vector<int> &pairs;
  Stream streams[2];
  int forwards[2] = {}, backwards[2] = {};
  std::deque<Action> waiting;
};

} // namespace

Schedule makeDualPipe(const ScheduleRequest &request) {
  int p = request.devices, m = request.microbatches;
  requirePairsOfDevices("dualpipe", p);
  require(m % 2 == 0 && m >= 2 * p,
          "dualpipe needs an even number of microbatches, at least " +
              std::to_string(2 * p) + ", not " + std::to_string(m) +
              "; give --microbatches " +
              std::to_string(std::max(2 * p, m + 1)));
  Schedule schedule = begin(request, bidirectionalPlacement(p));
  schedule.pairs.resize(p);
  for (int d = 0; d < p; ++d) {
    int q = std::min(d, p - 1 - d);
    Stream down{d, 0, 2}, up{p - 1 - d, 1, 2};
    bool upper = d >= p / 2;
    Steps(schedule, d, upper ? up : down, upper ? down : up)
        .run(p / 2, q, m / 2 - p + q + 1);
  }
  return schedule;
}

Schedule makeDualPipeV(const ScheduleRequest &request) {
  int p = request.devices, m = request.microbatches;
  require(m >= 2 * p, "dualpipe-v needs at least " + std::to_string(2 * p) +
                          " microbatches, not " + std::to_string(m) +
                          "; give --microbatches " + std::to_string(2 * p) +
                          " or fewer --stages");
  Schedule schedule = begin(request, zigzagPlacement(p, 2));
  schedule.pairs.resize(p);
  for (int d = 0; d < p; ++d)
    Steps(schedule, d, {d, 0, 1}, {2 * p - 1 - d, 0, 1})
        .run(p, d, m - 2 * p + d + 1);
  return schedule;
}

} // namespace pipec::schedule
