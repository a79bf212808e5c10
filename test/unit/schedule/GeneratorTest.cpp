// What generators promise: orders, in-flight counts, requests they refuse.
#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Csv.h"
#include "compiler/schedule/Simulator.h"
#include "compiler/schedule/Verifier.h"
#include "compiler/schedule/generators/Published.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::schedule;

namespace {

ScheduleRequest sizes(int devices, int microbatches) {
  ScheduleRequest request;
  request.devices = devices;
  request.microbatches = microbatches;
  return request;
}

std::string usageError(const char *name, const ScheduleRequest &request) {
  try {
    generate(name, request);
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::Usage) << failure.what();
    return failure.what();
  }
  return "accepted";
}

TEST(Generator, InFlightOf1F1B) {
  for (int p : {1, 2, 5})
    for (int m : {1, 3, 9}) {
      Schedule schedule = generate("1f1b", sizes(p, m));
      for (int s = 0; s < p; ++s)
        EXPECT_EQ(inFlight(schedule)[s], std::vector<int>{std::min(p - s, m)});
    }
}

TEST(Generator, ReplicatedStages) {
  // PipeDream's warm-up floor((sum_{t>=s} r_t - 1)/r_s); a stage then holds
  // one microbatch more.
  struct Case {
    std::vector<int> replicas;
    std::vector<std::vector<int>> held;
  };
  const Case cases[] = {{{2, 1}, {{2, 2}, {1}}},
                        {{3, 1}, {{2, 2, 2}, {1}}},
                        {{1, 3}, {{4}, {1, 1, 1}}},
                        {{1, 2, 1}, {{4}, {2, 2}, {1}}},
                        {{2, 2}, {{2, 2}, {1, 1}}}};
  for (const char *name : {"1f1b", "pipedream"})
    for (const Case &c : cases) {
      ScheduleRequest request = sizes(0, 24);
      request.replicas = c.replicas;
      for (int r : c.replicas)
        request.devices += r;
      Schedule schedule = generate(name, request);
      EXPECT_EQ(inFlight(schedule), c.held) << name;
      for (int d = 0; d < schedule.devices(); ++d)
        for (const Action &a : schedule.order[d])
          EXPECT_EQ(
              schedule.placement[a.stage][a.microbatch % c.replicas[a.stage]],
              d);
    }
}

TEST(Generator, UnevenReplicasOrder) {
  ScheduleRequest request = sizes(3, 5);
  request.replicas = {2, 1};
  EXPECT_EQ(writeCsv(generate("1f1b", request)),
            "0F0,0F2,0B0,0F4,0B2,0B4\n"
            "0F1,0F3,0B1,0B3\n"
            "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4\n");
  EXPECT_EQ(writeCsv(generate("gpipe", request)),
            "0F0,0F2,0F4,0B0,0B2,0B4\n"
            "0F1,0F3,0B1,0B3\n"
            "1F0,1F1,1F2,1F3,1F4,1B0,1B1,1B2,1B3,1B4\n");
}

TEST(Generator, DataParallel) {
  Schedule schedule = generate("dp", sizes(3, 7));
  EXPECT_EQ(schedule.stages, 1);
  EXPECT_EQ(writeCsv(schedule), "0F0,0B0,0F3,0B3,0F6,0B6\n"
                                "0F1,0B1,0F4,0B4\n0F2,0B2,0F5,0B5\n");
  EXPECT_EQ(inFlight(schedule)[0], (std::vector<int>{1, 1, 1}));
}

TEST(Generator, WarmupsAreChecked) {
  ScheduleRequest request = sizes(2, 4);
  request.warmup = {3, 1};
  EXPECT_EQ(inFlight(generate("1f1b", request), 0, 0), 3);
  request.warmup = {1, 2};
  EXPECT_EQ(usageError("1f1b", request),
            "1f1b: these warm-ups deadlock (an earlier stage needs at least "
            "as many as a later one): device 0 waits at 0B0, which waits for: "
            "device 1 waits at 1F1");
  request.warmup = {1};
  EXPECT_EQ(usageError("1f1b", request), "1f1b: 1 warm-ups given for 2 stages");
  request.warmup = {1, 0};
  EXPECT_EQ(usageError("1f1b", request),
            "1f1b: the warm-up of stage 1 must be at least 1");
}

TEST(Generator, WholeBackwardsOnAVInTwoThirdsOfTheMemory) {
  for (int p : {2, 3, 4, 5, 6, 8, 11})
    for (int variant : {0, 1, 7}) {
      ScheduleRequest request = sizes(p, 4 * p);
      Schedule schedule = wholeBackwardsV(request, variant);
      ASSERT_TRUE(verify(schedule).empty()) << p << " " << variant;
      Timeline line = simulate(schedule, costsFor(schedule, request));
      if (variant == 0)
        EXPECT_LE(line.maxPeak(), (2 * p + 2) / 3 + 1) << p;
      // Six slots a microbatch, and the way there and back.
      EXPECT_LE(line.span, 3 * 4 * p + 8 * p) << p;
    }
}

TEST(Generator, OptionsOfOtherSchedulesAreRefused) {
  for (const ScheduleRow &row : schedules()) {
    auto refusal = [&](auto set) -> std::string {
      ScheduleRequest request;
      request.devices = 4;
      request.microbatches = 8;
      set(request);
      try {
        generate(row.name, request);
      } catch (const Failure &failure) {
        EXPECT_EQ(failure.code, Exit::Usage);
        return failure.what();
      }
      return "";
    };
    const std::string name = row.name;
    EXPECT_EQ(refusal([](auto &r) { r.warmup = {4, 3, 2, 1}; }),
              name == "1f1b" ? "" : name + " has no warm-up to choose");
    EXPECT_EQ(refusal([](auto &r) { r.groupSize = 4; }),
              name.starts_with("interleaved")
                  ? ""
                  : name + " has no groups of microbatches");
    EXPECT_EQ(refusal([](auto &r) { r.slices = 2; }),
              name == "seq1f1b"
                  ? ""
                  : name + " does not cut microbatches into slices");
  }
}

TEST(Generator, OneSliceIsWholeMicrobatches) {
  ScheduleRequest request;
  request.devices = 3;
  request.microbatches = 5;
  request.slices = 1;
  EXPECT_EQ(generate("seq1f1b", request).order,
            generate("1f1b",
                     [&] {
                       ScheduleRequest plain = request;
                       plain.slices = 0;
                       return plain;
                     }())
                .order);
  request.slices = 0;
  EXPECT_EQ(generate("seq1f1b", request).microbatches, 20);
}

TEST(Generator, RefusesImpossibleSizes) {
  EXPECT_EQ(usageError("1f1b", sizes(0, 4)),
            "1f1b: devices must be between 1 and 65536, not 0");
  EXPECT_EQ(usageError("gpipe", sizes(4, -1)),
            "gpipe: microbatches must be between 1 and 16777216, not -1");
  EXPECT_EQ(usageError("gpipe", sizes(60000, 16000000)),
            "gpipe: 60000 devices times 16000000 microbatches is more than "
            "67108864 tasks");
  ScheduleRequest request = sizes(4, 4);
  request.chunks = 2;
  EXPECT_EQ(usageError("1f1b", request),
            "1f1b has exactly 1 stage per device, not 2");
  request = sizes(4, 4);
  request.replicas = {2, 1};
  EXPECT_EQ(usageError("1f1b", request),
            "1f1b: replicas add up to 3 devices, not 4");
  request.replicas = {4, 0};
  EXPECT_EQ(usageError("1f1b", request),
            "1f1b: a stage needs at least one replica");
  EXPECT_EQ(usageError("2f2b", request)
                .find("no schedule '2f2b'; there are: naive, "),
            0u);
}

} // namespace
