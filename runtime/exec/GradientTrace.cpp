//===- GradientTrace.cpp - when a task is done with gradients -------------===//
#include "runtime/exec/GradientTrace.h"

#include <algorithm>
#include <tuple>

namespace pipec {
namespace {

/// Where a region would be: far from all others.
char *fakeBase(int region) {
  return reinterpret_cast<char *>(static_cast<uintptr_t>(region + 1) << 42);
}

/// Looks at what the calls of a task point to in GRADIENTS.
struct Recording {
  PipecDevice table{}; // first: it is what the task is given
  int64_t bytes = 0;   ///< of GRADIENTS
  int64_t calls = 0;
  struct Use {
    int64_t offset, call; ///< counted from 1
  };
  std::vector<Use> uses;

  void look(std::initializer_list<const char *> addresses) {
    ++calls;
    for (const char *address : addresses)
      use(address);
  }
  void use(const char *address) {
    const int64_t offset = static_cast<int64_t>(
        reinterpret_cast<uintptr_t>(address) -
        reinterpret_cast<uintptr_t>(fakeBase(PIPEC_GRADIENTS)));
    if (offset >= 0 && offset < bytes)
      uses.push_back({offset, calls});
  }
  static Recording &of(PipecDevice *table) {
    return *reinterpret_cast<Recording *>(table);
  }
};

Recording record(PipecTask task, int64_t bytes) {
  Recording recording;
  recording.bytes = bytes;
  PipecDevice &table = recording.table;
  table.literals = fakeBase(PIPEC_REGION_COUNT);
  table.fault = fakeBase(PIPEC_REGION_COUNT + 1);
  table.launch = [](PipecDevice *table, int32_t, int64_t, int32_t, int32_t,
                    char *const *arguments, int32_t count) {
    Recording &self = Recording::of(table);
    self.look({});
    std::for_each(arguments, arguments + count,
                  [&](const char *argument) { self.use(argument); });
  };
  table.matmul = [](PipecDevice *table, const PipecMatmul *, const char *a,
                    const char *b,
                    char *c) { Recording::of(table).look({a, b, c}); };
  // As if it were the calls that it saves: as those it counts.
  table.biased = [](PipecDevice *, const PipecMatmul *, const char *,
                    const char *, const char *, char *) { return 0; };
  table.conv = [](PipecDevice *table, const PipecConv *, int32_t,
                  const char *first, const char *second, char *result) {
    Recording::of(table).look({first, second, result});
  };
  table.attention = [](PipecDevice *, const PipecAttention *, char *const *) {
    return 0;
  };
  table.clear = [](PipecDevice *table, char *at, int64_t) {
    Recording::of(table).look({at});
  };
  PipecFrame frame{};
  for (int region = 0; region < PIPEC_REGION_COUNT; ++region)
    frame.base[region] = fakeBase(region);
  frame.device = &table;
  frame.scalars = fakeBase(PIPEC_REGION_COUNT + 2);
  task(&frame);
  return recording;
}

/// The accumulators of a stage, as bytes [begin, end) of GRADIENTS.
struct Accumulator {
  int64_t begin, end;
  int64_t last = 0; ///< the last call that touches it
};

std::vector<Accumulator> accumulators(const plan::Plan &plan,
                                      const plan::Stage &stage) {
  std::vector<Accumulator> result;
  for (const plan::StageWeight &weight : stage.weights) {
    int64_t bytes = sizeof(float);
    for (int64_t dim : plan.weights[weight.weight].shape)
      bytes *= dim;
    for (auto [use, offset] : weight.gradients)
      result.push_back({offset, offset + bytes});
  }
  return result;
}

} // namespace

std::vector<CompleteBucket> completion(PipecTask task, const plan::Plan &plan,
                                       const plan::Stage &stage,
                                       const plan::Buckets &buckets) {
  std::vector<Accumulator> places = accumulators(plan, stage);
  const Recording recording = record(task, buckets.bytes);
  int64_t elsewhere = 0; // a call that touches who knows what
  for (auto [offset, call] : recording.uses) {
    bool found = false;
    for (Accumulator &place : places)
      if (offset >= place.begin && offset < place.end)
        place.last = std::max(place.last, call), found = true;
    if (!found)
      elsewhere = std::max(elsewhere, call);
  }
  std::vector<CompleteBucket> result;
  for (int64_t i = 0; i < buckets.count; ++i) {
    CompleteBucket bucket{i, elsewhere};
    const int64_t begin = buckets.begin(i), end = begin + buckets.length(i);
    for (const Accumulator &place : places)
      if (place.begin < end && place.end > begin)
        bucket.calls = std::max(bucket.calls, place.last);
    result.push_back(bucket);
  }
  std::sort(result.begin(), result.end(), [](auto &a, auto &b) {
    return std::tie(a.calls, a.bucket) < std::tie(b.calls, b.bucket);
  });
  return result;
}

} // namespace pipec
