//===- Interleaved.cpp - several stages per device, looped ----------------===//
//
// Device r holds stages r, P+r, 2P+r, … (Megatron-LM, Narayanan et al., SC
// 2021). Microbatches go through a chunk in groups of G (default P): forwards
// take chunk 0 for a group, then chunk 1 for the same group, …; backwards take
// the chunks in reverse. 2(P-1-r) + (V-1)G forwards of warm-up, then one
// backward for each forward. Bubble (P-1)(F+B)/V; device 0 holds P + (P-1)/V
// microbatches.
//
// interleaved-zb (PyTorch's ScheduleInterleavedZeroBubble) splits the backward:
// with P-1-r instead of 2(P-1-r) warm-up forwards, and weight gradients r
// backwards late, it needs P microbatches of memory for any V.
//
// looped-bfs (Lamy-Poirier, MLSys 2023) runs all microbatches through a chunk
// before the next: each stage's weights are visited once per step, for memory
// that grows with M.
//
//   interleaved-1f1b, P = 4, M = 4:
//   0 |F0F1F2F3f0f1f2f3............b0==..b1==..b2==..b3==B0==B1==B2==B3==
//   1 |..F0F1F2F3f0f1f2f3......b0==..b1==..b2==..b3==B0==B1==B2==B3==....
//   2 |....F0F1F2F3f0f1f2..b0==f3b1==..b2==..b3==B0==B1==B2==B3==........
//   3 |......F0F1F2F3f0b0==f1b1==f2b2==f3b3==B0==B1==B2==B3==............
//
//   interleaved-zb, P = 4, M = 4:
//   0 |F0F1F2F3f0f1f2f3......i0w0i1w1i2w2i3w3I0W0I1W1I2W2I3W3
//   1 |..F0F1F2F3f0f1f2....i0f3i1w0i2w1i3w2I0w3I1W0I2W1I3W2W3
//   2 |....F0F1F2F3f0f1..i0f2i1f3i2w0i3w1I0w2I1w3I2W0I3W1W2W3
//   3 |......F0F1F2F3f0i0f1i1f2i2f3i3w0I0w1I1w2I2w3I3W0W1W2W3
//
//   looped-bfs, P = 4, M = 4:
//   0 |F0F1F2F3f0f1f2f3..................b0==b1==b2==b3==B0==B1==B2==B3==
//   1 |..F0F1F2F3f0f1f2f3............b0==b1==b2==b3==B0==B1==B2==B3==....
//   2 |....F0F1F2F3f0f1f2f3......b0==b1==b2==b3==B0==B1==B2==B3==........
//   3 |......F0F1F2F3f0f1f2f3b0==b1==b2==b3==B0==B1==B2==B3==............
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/Replay.h"
#include "compiler/schedule/generators/Build.h"
#include "support/Failure.h"

#include <algorithm>

namespace pipec::schedule {

/// Group sizes that add up to the microbatches. As asked, with a short last
/// one; by default as many groups of at least P as there are, as even as can
/// be, so that any number of microbatches works.
static std::vector<int> groups(const ScheduleRequest &request) {
  std::vector<int> sizes;
  int m = request.microbatches;
  if (request.groupSize > 0) {
    for (; m > 0; m -= request.groupSize)
      sizes.push_back(std::min(m, request.groupSize));
    return sizes;
  }
  int count = std::max(1, m / request.devices);
  for (int g = 0; g < count; ++g)
    sizes.push_back(m / count + (g < m % count));
  return sizes;
}

namespace {

/// (chunk, microbatch) in the order a device takes them.
struct Turn {
  int chunk, microbatch;
};

} // namespace

static std::vector<Turn> turns(const std::vector<int> &sizes, int chunks) {
  std::vector<Turn> result;
  int first = 0;
  for (int size : sizes) {
    for (int c = 0; c < chunks; ++c)
      for (int k = 0; k < size; ++k)
        result.push_back({c, first + k});
    first += size;
  }
  return result;
}

/// The order of one device: `warmup` forwards, alternation, the rest; with
/// `split` the weight gradient of backward j follows backward j + `delay`.
static std::vector<Action> deviceOrder(const ScheduleRequest &request,
                                       const std::vector<Turn> &turns,
                                       int device, int warmup, bool split,
                                       int delay) {
  std::vector<Action> order;
  order.reserve(turns.size() * (split ? 3 : 2));
  int forward = 0, backward = 0, weight = 0;
  int n = static_cast<int>(turns.size());
  auto stage = [&](const Turn &t, bool back) {
    int chunk = back ? request.chunks - 1 - t.chunk : t.chunk;
    return chunk * request.devices + device;
  };
  auto runForward = [&] {
    if (forward == n)
      return;
    const Turn &t = turns[forward++];
    order.push_back({Kind::F, stage(t, false), t.microbatch});
  };
  auto runWeight = [&] {
    const Turn &t = turns[weight++];
    order.push_back({Kind::W, stage(t, true), t.microbatch});
  };
  while (forward < std::min(warmup, n))
    runForward();
  for (; backward < n; ++backward) {
    runForward();
    const Turn &t = turns[backward];
    order.push_back({split ? Kind::I : Kind::B, stage(t, true), t.microbatch});
    if (split && backward >= delay)
      runWeight();
  }
  while (split && weight < n)
    runWeight();
  return order;
}

static Schedule makeInterleaved(const ScheduleRequest &request, bool split) {
  int devices = request.devices;
  std::vector<int> sizes = groups(request);
  Schedule schedule = begin(request, loopedPlacement(devices, request.chunks));
  auto sequence = turns(sizes, request.chunks);
  for (int r = 0; r < devices; ++r) {
    int warmup =
        (request.chunks - 1) * sizes[0] + (split ? 1 : 2) * (devices - 1 - r);
    schedule.order[r] = deviceOrder(request, sequence, r, warmup, split, r);
  }
  if (request.groupSize > 0)
    if (auto stuck = replay(schedule, {}))
      throw Failure(Exit::Usage,
                    std::string(split ? "interleaved-zb" : "interleaved-1f1b") +
                        ": groups of " + std::to_string(request.groupSize) +
                        " microbatches deadlock here (each needs at least " +
                        std::to_string(devices) +
                        ", the number of devices): " + stuck->cycle);
  return schedule;
}

Schedule makeInterleaved1F1B(const ScheduleRequest &request) {
  return makeInterleaved(request, false);
}

Schedule makeInterleavedZB(const ScheduleRequest &request) {
  return makeInterleaved(request, true);
}

Schedule makeLoopedBFS(const ScheduleRequest &request) {
  int devices = request.devices, chunks = request.chunks;
  Schedule schedule = begin(request, loopedPlacement(devices, chunks));
  for (int r = 0; r < devices; ++r)
    for (Kind kind : {Kind::F, Kind::B})
      for (int c = 0; c < chunks; ++c)
        for (int k = 0; k < request.microbatches; ++k) {
          int chunk = kind == Kind::F ? c : chunks - 1 - c;
          schedule.order[r].push_back({kind, chunk * devices + r, k});
        }
  return schedule;
}

} // namespace pipec::schedule
