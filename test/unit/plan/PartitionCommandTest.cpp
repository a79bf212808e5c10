#include "compiler/plan/command/PartitionCommand.h"
#include "support/Failure.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

using namespace pipec;
using nlohmann::json;

namespace {

/// Convolutions of 18 ms in all, then 6 ms with most of the weights.
const char *profile =
    R"(n0 -- Input0 -- forward_compute_time=9, backward_compute_time=0, activation_size=0, parameter_size=0
n1 -- Conv2d -- forward_compute_time=4, backward_compute_time=6, activation_size=4000, parameter_size=100
n2 -- Conv2d -- forward_compute_time=1, backward_compute_time=3, activation_size=4000, parameter_size=100
n3 -- Conv2d -- forward_compute_time=1, backward_compute_time=3, activation_size=4000, parameter_size=100
n4 -- Linear -- forward_compute_time=2, backward_compute_time=4, activation_size=100, parameter_size=900000
)"
    "\tn0 -- n1\n\tn1 -- n2\n\tn2 -- n3\n\tn3 -- n4\n";

const char *placement = R"({"maxSizePerFPGA": 1e9, "maxFPGAs": 2, "maxCPUs": 0,
 "nodes": [
  {"id": 0, "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 3, "isBackwardNode": 0, "size": 1},
  {"id": 1, "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 2, "isBackwardNode": 0, "size": 1},
  {"id": 2, "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 4, "isBackwardNode": 0, "size": 1}],
 "edges": [{"sourceId": 0, "destId": 1, "cost": 0.25}, {"sourceId": 1, "destId": 2, "cost": 0.5}]})";

const char *piper = R"({"maxDevices": 2, "maxMemoryPerDevice": 100,
 "bandwidth": 10, "mbsInBatch": 4,
 "nodes": [
  {"id": 0, "name": "a", "TMPCs": {"1": [{"id": "vanilla",
   "timePerSample": 2, "parameterSize": 1, "memoryUsageA": 3,
   "memoryUsageB": 2, "syncTimeFw": {}, "syncTimeBw": {"1": 0.5}}]}},
  {"id": 1, "name": "b", "TMPCs": {"1": [{"id": "vanilla",
   "timePerSample": 3, "parameterSize": 1, "memoryUsageA": 3,
   "memoryUsageB": 2, "syncTimeFw": {"0": 0.5}, "syncTimeBw": {}}]}}],
 "edges": [{"sourceId": 0, "destId": 1, "communicationCost": 1}]})";

class PartitionCommand : public ::testing::Test {
protected:
  void SetUp() override {
    folder =
        std::filesystem::temp_directory_path() /
        ("pipec-partition-" +
         std::string(
             ::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    write("vgg.txt", profile);
    write("place.json", placement);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string path(const std::string &name) const {
    return (folder / name).string();
  }
  void write(const std::string &name, const std::string &text) {
    std::ofstream(folder / name) << text;
  }
  /// Runs the command; `code` becomes its exit code, the result is stdout, or
  /// the message of a failure.
  std::string run(std::vector<std::string> args) {
    args.insert(args.begin(), "partition");
    std::vector<char *> argv;
    for (std::string &a : args)
      argv.push_back(a.data());
    argv.push_back(nullptr);
    ::testing::internal::CaptureStdout();
    std::string message;
    try {
      code = partitionCommand(static_cast<int>(args.size()), argv.data());
    } catch (const Failure &f) {
      code = static_cast<int>(f.code);
      message = f.what();
    }
    std::string out = ::testing::internal::GetCapturedStdout();
    return message.empty() ? out : message;
  }

  std::filesystem::path folder;
  int code = -1;
};

} // namespace

TEST_F(PartitionCommand, JsonHasWhatTheInterfaceNames) {
  json r = json::parse(run({path("vgg.txt"), "--devices", "4", "--bandwidth",
                            "1e7", "--format", "json"}));
  EXPECT_EQ(code, 0);
  EXPECT_EQ(r["unit"], "ms");
  // 3-1: three replicas of the convolutions, the weights once.
  ASSERT_EQ(r["stages"].size(), 2u);
  EXPECT_EQ(r["stages"][0]["replicas"], 3);
  EXPECT_EQ(r["stages"][0]["nodes"], (json{"n1", "n2", "n3"}));
  EXPECT_EQ(r["stages"][1]["nodes"], (json{"n4"}));
  EXPECT_EQ(r["stages"][1]["devices"], (json{3}));
  EXPECT_EQ(r["stages"][0]["device_kind"], "gpu");
  // 18 ms over three, and the ring of 300 bytes over 1e7 bytes/s.
  EXPECT_NEAR(r["objective"].get<double>(),
              (18 + 1000 * 4 * 2 * 300 / (1e7 * 3)) / 3, 1e-9);
  EXPECT_GT(r["data_parallel"].get<double>(), r["objective"].get<double>());
  EXPECT_GE(r["seconds"].get<double>(), 0);
  EXPECT_TRUE(r["exact"].get<bool>());
  EXPECT_EQ(r["states"], 5);
}

/// A limit that nothing comes near takes no second search, over fewer cuts.
TEST_F(PartitionCommand, ALimitThatDoesNotBindChangesNothing) {
  std::string text, edges;
  for (int v = 0; v < 600; ++v) {
    text += "n" + std::to_string(v) +
            " -- Conv2d -- forward_compute_time=1, backward_compute_time=" +
            std::to_string(1 + v % 3) +
            ", activation_size=1000, parameter_size=1000\n";
    if (v)
      edges +=
          "\tn" + std::to_string(v - 1) + " -- n" + std::to_string(v) + "\n";
  }
  write("chain.txt", text + edges);
  auto partition = [&](const std::vector<std::string> &more) {
    std::vector<std::string> words = {
        path("chain.txt"), "--devices", "2x2", "--bandwidth",
        "1e9,1e10",        "--format",  "json"};
    words.insert(words.end(), more.begin(), more.end());
    json r = json::parse(run(words));
    EXPECT_EQ(code, 0);
    return std::array{r["exact"], r["stages"], r["objective"]};
  };
  const auto free = partition({}),
             loose = partition({"--memory-limit", "100000000000000"});
  EXPECT_TRUE(free[0].get<bool>());
  EXPECT_EQ(free, loose);
}

/// The space is larger, however few of its cuts are looked at at a time.
TEST_F(PartitionCommand, StraddlingIsNeverSlower) {
  for (int graph = 0; graph < 4; ++graph) {
    std::string text, edges;
    for (int v = 0; v < 240; ++v) {
      const int some = (v * 7919 + graph * 104729) % 1009; // no order in it
      text += "n" + std::to_string(v) + " -- Conv2d -- forward_compute_time=" +
              std::to_string(1 + some / 500.0) +
              ", backward_compute_time=1, activation_size=" +
              std::to_string(100'000 + some * 1800) +
              ", parameter_size=" + std::to_string(10'000 + some * 390) + "\n";
      if (v > 0)
        edges +=
            "\tn" + std::to_string(v - 1) + " -- n" + std::to_string(v) + "\n";
    }
    write("chain.txt", text + edges);
    double objective[2];
    for (bool on : {false, true})
      objective[on] =
          json::parse(run({path("chain.txt"), "--devices", "16x16",
                           "--bandwidth", "3.125e9,30e9", "--straddle",
                           on ? "on" : "off", "--format", "json"}))["objective"]
              .get<double>();
    EXPECT_LE(objective[true], objective[false]) << graph;
  }
}

/// Any number of levels, outermost first, under each objective.
TEST_F(PartitionCommand, LevelsOfAnyNumber) {
  auto partition = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {path("vgg.txt"), "--format", "json"});
    const std::string out = run(words);
    EXPECT_EQ(code, 0) << out;
    return json::parse(out);
  };
  const std::vector<std::string> cluster{"--devices", "2x3x2", "--bandwidth",
                                         "1e6,1e7,1e8"};
  auto with = [&](const std::vector<std::string> &more) {
    std::vector<std::string> words = cluster;
    words.insert(words.end(), more.begin(), more.end());
    return partition(words);
  };
  const json off = with({}), on = with({"--straddle", "on"});
  // 24 ms and 900,300 bytes over 2, 3 and 2 machines; the first exchange of a
  // level is divided by the machines of the one below.
  const double w = 900300;
  double seconds = (0.024 + 4 * w / (1e8 * 2)) / 2;
  seconds = (seconds + 4 * 2 * w / (1e7 * 3) / 2) / 3;
  seconds = (seconds + 4 * w / (1e6 * 2) / 3) / 2;
  EXPECT_NEAR(off["data_parallel"].get<double>(), seconds * 1e3, 1e-9);
  EXPECT_LE(on["objective"].get<double>(), off["objective"].get<double>());
  EXPECT_TRUE(off["exact"].get<bool>());
  for (const json &plan : {off, on, with({"--memory-limit", "2MB"}),
                           with({"--objective", "step"})}) {
    std::set<int> used;
    for (const json &stage : plan["stages"])
      for (const json &device : stage["devices"])
        EXPECT_TRUE(used.insert(device.get<int>()).second);
    EXPECT_LT(*used.rbegin(), 12);
    EXPECT_GT(used.size(), 1u);
  }
  // One bandwidth is that of all levels; outer levels of one machine and inner
  // ones say nothing.
  auto same = [&](std::vector<std::string> a, std::vector<std::string> b) {
    for (const char *straddle : {"off", "on"}) {
      for (auto *words : {&a, &b})
        words->insert(words->end(), {"--straddle", straddle});
      EXPECT_EQ(partition(a)["stages"], partition(b)["stages"]);
      a.resize(4), b.resize(4);
    }
  };
  same({"--devices", "2x2x2", "--bandwidth", "1e7"},
       {"--devices", "2x2x2", "--bandwidth", "1e7,1e7,1e7"});
  same({"--devices", "1x2x4x1", "--bandwidth", "1,1e6,1e7,1"},
       {"--devices", "2x4", "--bandwidth", "1e6,1e7"});
  // One in between makes the level above divide by one.
  const json between =
      partition({"--devices", "2x1x2", "--bandwidth", "1e6,1e9,1e8"});
  seconds = ((0.024 + 4 * w / (1e8 * 2)) / 2 + 4 * w / (1e6 * 2)) / 2;
  EXPECT_NEAR(between["data_parallel"].get<double>(), seconds * 1e3, 1e-9);
}

/// What keeps copies for the devices behind it gains from devices that are left
/// idle, of any level.
TEST_F(PartitionCommand, MoreDevicesAreNeverSlowerUnderALimit) {
  write("two.txt", "a -- L -- forward_compute_time=1, backward_compute_time=3, "
                   "activation_size=1000, parameter_size=2000000\n"
                   "b -- L -- forward_compute_time=5, backward_compute_time=1, "
                   "activation_size=0, parameter_size=2000000\n\ta -- b\n");
  for (const char *devices : {"1", "2", "4", "2x2", "2x2x2", "3x2", "2x4"}) {
    const json plan = json::parse(
        run({path("two.txt"), "--devices", devices, "--bandwidth", "1e8",
             "--memory-limit", "4001000", "--format", "json"}));
    EXPECT_EQ(code, 0) << devices;
    EXPECT_LE(plan["objective"].get<double>(), 10 * (1 + 1e-9)) << devices;
    EXPECT_TRUE(plan["exact"].get<bool>()) << devices;
  }
}

TEST_F(PartitionCommand, BandwidthsAreAsManyAsLevels) {
  auto expect = [&](const std::string &devices, const std::string &bandwidth,
                    const std::string &part) {
    for (const char *objective : {"pipedream", "step"}) {
      const std::string message =
          run({path("vgg.txt"), "--devices", devices, "--bandwidth", bandwidth,
               "--objective", objective});
      EXPECT_EQ(code, 64) << message;
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  };
  expect("2x2x2", "1e9,1e9",
         "--bandwidth has 2 values; give one for each of the levels of "
         "--devices 2x2x2, outermost first, or one for all");
  expect("2x2", "1e9,1e9,1e9", "--bandwidth has 3 values");
  expect("4", "1e9,1e9,1e9", "of the levels of --devices 4");
  expect("2xx2", "1e9", "--devices: '' is not a whole number");
  expect("2x2x0", "1e9", "write M, NxM or AxBxC and so on, as 4, 2x8 or 2x2x4");
  expect("2x2x", "1e9", "--devices: '' is not a whole number");
  expect("2x2", "1e9,", "--bandwidth 1e9,: a value is missing; write one");
  expect("2x2", ",", "--bandwidth ,: a value is missing; write one");
  // A graph that names its devices has one level of them.
  run({path("place.json"), "--objective", "step", "--bandwidth", "1e9,1e9"});
  EXPECT_EQ(code, 0);
  EXPECT_NE(run({path("place.json"), "--objective", "step", "--bandwidth",
                 "1e9,1e9,1e9"})
                .find("give one for each of one level of devices"),
            std::string::npos);
  EXPECT_EQ(code, 64);
}

TEST_F(PartitionCommand, SameInputSameBytes) {
  auto strip = [](const std::string &text) {
    json r = json::parse(text);
    r.erase("seconds");
    r.erase("wall_seconds");
    return r.dump();
  };
  std::vector<std::string> args{path("vgg.txt"), "--devices", "2x2",
                                "--bandwidth",   "1e6,1e7",   "--format",
                                "json"};
  EXPECT_EQ(strip(run(args)), strip(run(args)));
  std::vector<std::string> free{path("place.json"), "--shape", "free",
                                "--format", "json"};
  EXPECT_EQ(strip(run(free)), strip(run(free)));
}

TEST_F(PartitionCommand, PlacementTakesTheFilesDevices) {
  json r = json::parse(run({path("place.json"), "--format", "json"}));
  EXPECT_EQ(code, 0);
  // {0, 1} | {2}: 5 + 0.5 against 4 + 0.5; {0} | {1, 2} costs 6.25.
  EXPECT_NEAR(r["objective"].get<double>(), 5.5, 1e-12);
  EXPECT_TRUE(r["data_parallel"].is_null());
  json one = json::parse(
      run({path("place.json"), "--devices", "1", "--format", "json"}));
  EXPECT_NEAR(one["objective"].get<double>(), 9, 1e-12);
  json three = json::parse(
      run({path("place.json"), "--devices", "3", "--format", "json"}));
  EXPECT_NEAR(three["objective"].get<double>(), 4.5, 1e-12);
}

TEST_F(PartitionCommand, TextAndDotExplain) {
  std::string text = run({path("vgg.txt"), "--devices", "4", "--bandwidth",
                          "1e7", "--dot", path("g.dot")});
  EXPECT_EQ(code, 0);
  for (const char *part :
       {"stage", "replicas", "data parallel", "nothing is below", "optimal"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  std::ostringstream dot;
  dot << std::ifstream(path("g.dot")).rdbuf();
  EXPECT_NE(dot.str().find("digraph"), std::string::npos);
  EXPECT_NE(dot.str().find("\"n3\" -> \"n4\""), std::string::npos);
  EXPECT_NE(dot.str().find("stage 1"), std::string::npos);
  EXPECT_EQ(
      run({path("vgg.txt"), "--devices", "4", "--bandwidth", "1e7", "--quiet"}),
      "");
}

TEST_F(PartitionCommand, StepObjectivePlansEveryFormat) {
  for (const char *strategy : {"1f1b", "gpipe", "dp"}) {
    json r =
        json::parse(run({path("vgg.txt"), "--objective", "step", "--devices",
                         "2x2", "--bandwidth", "1e6,1e7", "--microbatches", "8",
                         "--strategy", strategy, "--format", "json"}));
    EXPECT_EQ(code, 0);
    EXPECT_GT(r["objective"].get<double>(), 24.0 * 8 / 4);
    size_t nodes = 0;
    for (const auto &stage : r["stages"])
      nodes += stage["nodes"].size();
    EXPECT_EQ(nodes, 4u);
  }
  json r = json::parse(run({path("place.json"), "--objective", "step",
                            "--microbatches", "4", "--format", "json"}));
  EXPECT_EQ(code, 0);
  EXPECT_GE(r["objective"].get<double>(), 9.0 * 4 / 2);
}

TEST_F(PartitionCommand, MistakesHaveTheirCodes) {
  auto expect = [&](int want, const std::vector<std::string> &args,
                    const std::string &part) {
    std::string message = run(args);
    EXPECT_EQ(code, want) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  std::string vgg = path("vgg.txt"), place = path("place.json");
  expect(64, {vgg}, "--devices");
  expect(64, {vgg, "--devices", "4"}, "--bandwidth");
  expect(64, {vgg, "--devices", "0x4", "--bandwidth", "1e9"},
         "'0' is not a whole number from 1 to 1000000; write M, NxM or AxBxC "
         "and so on, as 4, 2x8 or 2x2x4");
  expect(
      64, {vgg, "--devices", "2147483648", "--bandwidth", "1e9"},
      "'2147483648' is not a whole number from 1 to 1000000; write M, NxM or "
      "AxBxC and so on, as 4, 2x8 or 2x2x4");
  expect(64, {vgg, "--devices", "4", "--bandwidth", "1e-300"},
         "from 1e-6 to 1e18 bytes per second");
  expect(64,
         {vgg, "--objective", "step", "--devices", "2x2", "--bandwidth", "1e9",
          "--microbatches", "16000000"},
         "too many tasks for; give --microbatches ");
  expect(64, {vgg, "--devices", "4", "--bandwidth", "-1"}, "'-1'");
  expect(64, {vgg, "--devices", "4", "--bandwidth", "1e9,fast"}, "'fast'");
  expect(64,
         {vgg, "--devices", "4", "--bandwidth", "1e9", "--memory-limit",
          "3 apples"},
         "apples");
  expect(64, {vgg, "--colour"}, "--colour");
  expect(64, {vgg, "--objective", "speed"}, "speed");
  expect(64,
         {vgg, "--objective", "piper", "--devices", "4", "--bandwidth", "1e9"},
         "pipedream");
  expect(64, {vgg, "--devices", "4", "--bandwidth", "1e9", "--shape", "free"},
         "--shape free");
  expect(64, {place, "--straddle", "on"}, "--straddle on");
  expect(64,
         {vgg, "--devices", "64x8", "--bandwidth", "1e9", "--straddle", "on"},
         "at most 256 devices");
  expect(64, {place, "--strategy", "gpipe"}, "--strategy");
  expect(64,
         {vgg, "--devices", "4", "--bandwidth", "1e9", "--microbatches", "8"},
         "--microbatches");
  expect(64, {place, "--bandwidth", "1e9"}, "--bandwidth");
  expect(64,
         {vgg, "--objective", "step", "--devices", "4", "--bandwidth", "1e9",
          "--straddle", "on"},
         "--straddle on");
  expect(64, {}, "graph");
  expect(64,
         {vgg, "--objective", "step", "--devices", "2", "--bandwidth", "1e9",
          "--strategy", "hope"},
         "1f1b");
  expect(66, {path("missing.txt")}, "missing.txt");
  expect(64, {vgg}, "needs --devices NxM or M and --bandwidth INTER,INTRA");
  expect(64, {vgg, "--devices", "2"}, "profile needs --bandwidth INTER,INTRA");
  expect(64, {vgg, "--bandwidth", "1e9"}, "profile needs --devices NxM or M");
  write("other.json", "{\"version\": 3}");
  expect(65, {path("other.json")},
         "by its looks it was taken for a placement graph: --graph-format");
  write("list.json", "\n[1, 2]");
  expect(65, {path("list.json")},
         "list.json:2: this placement graph is not an object");
  write("other.json", "{\"nodes\": [], \"edges\": []}");
  expect(65, {path("other.json")},
         "other.json:1: this placement graph has no \"maxSizePerFPGA\"");
  write("other.json", "{\n\"maxDevices\": 2, \"nodes\": []}");
  expect(65, {path("other.json")},
         "other.json:1: this Piper graph has no \"mbsInBatch\"");
  write("many.json", "{\"maxDevices\": 1000001, \"mbsInBatch\": 2, "
                     "\"maxMemoryPerDevice\": 9, \"bandwidth\": 1, "
                     "\"edges\": [], \"nodes\": [{\"id\": 0, \"TMPCs\": "
                     "{\"1\": [{\"id\": \"v\", \"timePerSample\": 1, "
                     "\"parameterSize\": 0, \"memoryUsageA\": 0, "
                     "\"memoryUsageB\": 0, \"syncTimeFw\": {}, "
                     "\"syncTimeBw\": {}}]}}]}");
  expect(64, {path("many.json")}, "at most a million devices");
  write("bad.json", "{\"nodes\": 3}");
  expect(65, {path("bad.json")}, "maxSizePerFPGA");
  write("bad.txt", "n1 -- x\n");
  expect(65, {path("bad.txt"), "--devices", "2", "--bandwidth", "1e9"},
         "bad.txt:1: a PipeDream profile has 'id -- description -- times and "
         "sizes' here; by its looks it was taken for a pipedream graph: "
         "--graph-format says what it is (pipedream, placement or piper)");
  EXPECT_EQ(run({path("bad.txt"), "--devices", "2", "--bandwidth", "1e9",
                 "--graph-format", "pipedream"})
                .find("--graph-format"),
            std::string::npos);
  expect(65, {path("bad.txt"), "--graph-format", "piper"}, "not JSON");
  write("bad.txt", std::string(profile) + "\tn1 n2\n");
  expect(65, {path("bad.txt"), "--devices", "2", "--bandwidth", "1e9"},
         ": a PipeDream profile has '<tab>source -- destination' here");
  write("empty", "");
  expect(65, {path("empty")}, "empty");
  expect(73,
         {vgg, "--devices", "4", "--bandwidth", "1e9", "--dot",
          "/proc/nowhere/g.dot"},
         "g.dot");
  expect(79, {place, "--memory-limit", "1"}, "--memory-limit 2");
  expect(
      79,
      {vgg, "--devices", "2", "--bandwidth", "1e9", "--memory-limit", "1000"},
      "--memory-limit");
}

/// Not a profile that has lost its way.
TEST_F(PartitionCommand, ModelsAreSentToTheirCommand) {
  const std::string bytes("\x08\x08\x12\x07pytorch\x00\x3a", 14);
  write("model.onnx", bytes);
  write("model", bytes);
  for (const char *name : {"model.onnx", "model"}) {
    for (const std::vector<std::string> &more :
         {std::vector<std::string>{}, {"--graph-format", "pipedream"}}) {
      std::vector<std::string> args{path(name)};
      args.insert(args.end(), more.begin(), more.end());
      const std::string error = run(args);
      EXPECT_EQ(code, 65) << error;
      EXPECT_NE(error.find(" is a model; pipec partition takes cost graphs"),
                std::string::npos)
          << error;
      EXPECT_NE(error.find("'pipec " + path(name) + " --dry-run' plans"),
                std::string::npos)
          << error;
    }
  }
}

/// A number alone is bytes per second, which few links are as slow as.
TEST_F(PartitionCommand, UnitsOfBandwidthsAreAskedFor) {
  auto noted = [&](const std::vector<std::string> &more) {
    std::vector<std::string> args{path("vgg.txt")};
    args.insert(args.end(), more.begin(), more.end());
    ::testing::internal::CaptureStderr();
    run(args);
    EXPECT_EQ(code, 0);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(noted({"--devices", "2x2", "--bandwidth", "1e9,100"}),
            "pipec: note: --bandwidth 100 is 100 bytes per second; did you "
            "mean 100GB/s?\n");
  EXPECT_EQ(noted({"--devices", "4", "--bandwidth", "100B/s"}), "");
  EXPECT_EQ(noted({"--devices", "4", "--bandwidth", "100GB/s"}), "");
  EXPECT_EQ(noted({"--devices", "1x4", "--bandwidth", "1,1e9"}), "");
  EXPECT_EQ(noted({"--devices", "4", "--bandwidth", "100", "--quiet"}), "");
}

TEST_F(PartitionCommand, MistakesInFilesHaveTheirLines) {
  auto expect = [&](const std::string &text, const std::string &part) {
    write("bad", text);
    std::string message =
        text[0] == '{'
            ? run({path("bad")})
            : run({path("bad"), "--devices", "2", "--bandwidth", "1e9"});
    EXPECT_EQ(code, 65) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  auto with = [](std::string text, const std::string &from,
                 const std::string &to) {
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  // PipeDream profiles.
  expect(with(profile, "time=4,", "time=4, forward_compute_time=5,"),
         "bad:2: node n1 has forward_compute_time twice");
  expect(with(profile, "size=4000,", "size=[],"),
         "bad:2: activation_size '' is not a number");
  expect(with(profile, "size=900000", "size=1e308"),
         "bad:5: parameter_size is 1e308; it must be a number between 0 and "
         "1e15");
  expect(with(profile, "size=900000", "size=900000 -- stage_id=x"),
         "bad:5: stage_id 'x' is not a number");
  expect(with(profile, "n2 -- ", " -- "), "bad:3: a node without an id");
  expect(with(profile, "Linear", std::string("Lin\0ear", 7)),
         "bad:5: a NUL byte: this is no text file");
  expect(with(profile, "Linear",
              "Lin\xff"
              "ar"),
         "bad:5: this is not UTF-8");
  expect(with(profile, "size=4000,", "size=[1e15; 1],"),
         "bad:2: activation_size adds up to more than 1e15");
  // JSON: names in strings and nested values do not shift the count.
  expect("{\n\"nodes\": " + std::string(100000, '['),
         "bad:2: values are nested more than 500 deep");
  expect(
      with(placement, "\"sourceId\": 0", "\"sourceId\": 18446744073709551615"),
      "names unknown node 18446744073709551615");
  expect(with(placement, "\"id\": 0",
              "\"colorClass\": 9223372036854775808, \"id\": 0"),
         "\"colorClass\" is not a whole number below 2^63");
  expect(with(placement, "\"fpgaLatency\": 2,", ""),
         "bad:4: node 1 has no \"fpgaLatency\"");
  expect(with(placement, "\"fpgaLatency\": 4", "\"fpgaLatency\": 1e999"),
         "bad:5: number overflow");
  expect(with(placement, "\"size\": 1}]", "\"size\": 1, \"size\": 2}]"),
         "bad:5: \"size\" appears twice");
  expect(with(placement, "\"id\": 2,", "\"id\": 1, \"n\": \"{[,\\\":\","),
         "bad:5: node 1 appears twice");
  expect(with(placement, "\"cost\": 0.5", "\"cost\": -1"),
         "bad:6: edge 1: \"cost\" must be a number between 0 and 1e15");
  expect(with(placement, "\"id\": 0", "\"name\": \"\xff\", \"id\": 0"),
         "bad:3: not JSON: ");
  expect(with(placement, "\"maxCPUs\": 0", "\"maxCPUs\": }"),
         "bad:1: not JSON: syntax error");
  expect("{\"maxMemoryPerDevice\": 9, \"maxDevices\": 2, \"mbsInBatch\": 2,\n"
         "\"bandwidth\": 1, \"edges\": [], \"nodes\": [\n"
         "{\"id\": 1, \"TMPCs\": {\"1\": []}}]}",
         "bad:3: node 1, degree 1 is not a tensor-parallel degree");
}

TEST_F(PartitionCommand, FilesFromOtherEditorsAreRead) {
  std::string plain = run({path("vgg.txt"), "--devices", "4", "--bandwidth",
                           "1e7", "--format", "json"});
  std::string text(profile), windows;
  for (char c : text)
    windows += c == '\n' ? std::string(" \r\n") : std::string(1, c);
  write("win.txt", "\xef\xbb\xbf" + windows);
  json a = json::parse(plain),
       b = json::parse(run({path("win.txt"), "--devices", "4", "--bandwidth",
                            "1e7", "--format", "json"}));
  EXPECT_EQ(a["stages"], b["stages"]);
  write("mark.json", "\xef\xbb\xbf" + std::string(placement));
  run({path("mark.json")});
  EXPECT_EQ(code, 0);
}

TEST_F(PartitionCommand, AnyShapeFitsWhereContiguousDoesNot) {
  std::string text = R"({"maxSizePerFPGA": 6, "maxFPGAs": 2, "maxCPUs": 0,
    "edges": [{"sourceId": 0, "destId": 1, "cost": 0},
              {"sourceId": 1, "destId": 2, "cost": 0},
              {"sourceId": 2, "destId": 3, "cost": 0}], "nodes": [)";
  int id = 0;
  for (int size : {5, 5, 1, 1}) {
    text += std::string(id ? "," : "") + "{\"id\": " + std::to_string(id) +
            ", \"supportedOnFpga\": 1, \"cpuLatency\": 1, \"fpgaLatency\": 1, "
            "\"isBackwardNode\": 0, \"size\": " +
            std::to_string(size) + "}";
    ++id;
  }
  write("sizes.json", text + "]}");
  std::string message = run({path("sizes.json")});
  EXPECT_EQ(code, 79);
  EXPECT_NE(message.find("nothing fits in 6 B an accelerator: 1 B are missing; "
                         "it would fit with --memory-limit 7"),
            std::string::npos)
      << message;
  json free = json::parse(
      run({path("sizes.json"), "--shape", "free", "--format", "json"}));
  EXPECT_EQ(code, 0);
  EXPECT_NEAR(free["objective"].get<double>(), 2, 1e-12);
  EXPECT_TRUE(free["exact"].get<bool>());
  message = run({path("sizes.json"), "--shape", "free", "--memory-limit", "5"});
  EXPECT_EQ(code, 79);
  EXPECT_NE(message.find("--memory-limit 6"), std::string::npos) << message;
}

/// What an error names does, on one level and two, across servers or not.
TEST_F(PartitionCommand, TheLimitThatIsNamedFits) {
  std::string text, edges;
  for (int v = 0; v < 60; ++v) {
    const std::string id = "n" + std::to_string(v);
    text +=
        id +
        " -- Linear -- forward_compute_time=" + std::to_string(1 + v * 7 % 5) +
        ", backward_compute_time=2, activation_size=" +
        std::to_string(100000 * (1 + v * 13 % 17)) +
        ", parameter_size=" + std::to_string(10000 * (1 + v * 29 % 31)) + "\n";
    if (v > 0)
      edges += "\tn" + std::to_string(v - 1) + " -- " + id + "\n";
  }
  write("chain.txt", text + edges);
  const std::vector<std::vector<std::string>> clusters{
      {"--devices", "8"},
      {"--devices", "4x4"},
      {"--devices", "4x4", "--straddle", "on"}};
  for (std::vector<std::string> words : clusters) {
    words.insert(words.begin(), path("chain.txt"));
    for (const char *word : {"--bandwidth", "1e9,1e10", "--memory-limit"})
      words.push_back(word);
    words.push_back("1MB");
    const std::string message = run(words);
    EXPECT_EQ(code, 79) << message;
    const std::string before = "it would fit with --memory-limit ";
    const size_t at = message.find(before);
    ASSERT_NE(at, std::string::npos) << message;
    words.back() =
        std::to_string(std::stoll(message.substr(at + before.size())));
    run(words);
    EXPECT_EQ(code, 0) << words.back();
  }
}

/// Sums that no longer tell bytes apart have limits as well, and end.
TEST_F(PartitionCommand, SizesBeyondAllMemory) {
  auto chain = [](int nodes) {
    std::string text, edges;
    for (int v = 0; v < nodes; ++v) {
      const std::string id = "n" + std::to_string(v);
      text += id + " -- Linear -- forward_compute_time=1e15, "
                   "backward_compute_time=1e15, activation_size=1e15, "
                   "parameter_size=1e15\n";
      if (v > 0)
        edges += "\tn" + std::to_string(v - 1) + " -- " + id + "\n";
    }
    return text + edges;
  };
  write("chain.txt", chain(40));
  std::vector<std::string> words{path("chain.txt"), "--devices", "2x4",
                                 "--bandwidth", "1e9,1e10"};
  run(words);
  EXPECT_EQ(code, 0);
  words.insert(words.end(), {"--memory-limit", "1"});
  EXPECT_NE(run(words).find("are missing; it would fit with --memory-limit "),
            std::string::npos);
  EXPECT_EQ(code, 79);
  words.resize(5);
  words.insert(words.end(), {"--objective", "step", "--microbatches", "16"});
  EXPECT_NE(run(words).find("more than 1e18 bytes, which --objective step"),
            std::string::npos);
  EXPECT_EQ(code, 65);
  words.insert(words.end(), {"--memory-limit", "1e19"});
  words[6] = "step", words[8] = "1";
  run(words);
  EXPECT_EQ(code, 0);
  write("chain.txt", chain(501));
  EXPECT_NE(run(words).find("sizes add up to more than 1e18 bytes"),
            std::string::npos);
  EXPECT_EQ(code, 65);
  json graph = json::parse(placement);
  graph["nodes"][0]["size"] = 1e15;
  for (int v = 3; v < 1100; ++v) {
    graph["nodes"].push_back(graph["nodes"][0]);
    graph["nodes"].back()["id"] = v;
    graph["edges"].push_back({{"sourceId", v - 1}, {"destId", v}, {"cost", 1}});
  }
  write("g.json", graph.dump());
  EXPECT_NE(run({path("g.json")}).find("add up to more than 1e18 bytes"),
            std::string::npos);
  graph = json::parse(piper);
  graph["nodes"][0]["TMPCs"]["1"] =
      json(1001, graph["nodes"][0]["TMPCs"]["1"][0]);
  for (json &variant : graph["nodes"][0]["TMPCs"]["1"])
    variant["memoryUsageB"] = 1e15;
  write("g.json", graph.dump());
  EXPECT_NE(run({path("g.json")}).find("add up to more than 1e18 bytes"),
            std::string::npos);
}

/// However they are given, and before anything is made of them.
TEST_F(PartitionCommand, MoreDevicesThanAStepIsPlannedFor) {
  auto expect = [&](std::vector<std::string> words, const std::string &part) {
    std::string message = run(words);
    EXPECT_EQ(code, 64) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  auto onProfile = [&](const std::string &devices,
                       const std::string &objective) {
    return std::vector<std::string>{
        path("vgg.txt"), "--devices", devices,          "--bandwidth", "1e9",
        "--objective",   objective,   "--microbatches", "513"};
  };
  const std::string most = "--objective step plans at most 8192 devices, not ";
  expect(onProfile("8193", "step"), most + "8193; give fewer with --devices");
  expect(onProfile("1000x1000", "step"), most + "1000000; give fewer");
  // 8192 are within it: what is refused here is the number of tasks.
  expect(onProfile("8192", "step"), "513 microbatches on 8192 devices");
  std::vector<std::string> words = onProfile("1025", "pipedream");
  words.resize(words.size() - 2);
  expect(words, "objective is searched for at most 1024 devices; --objective "
                "step plans up to 8192");
  for (const char *devices : {"8193", "1000000000"}) {
    json graph = json::parse(piper);
    graph["maxDevices"] = std::stoi(devices);
    write("many.json", graph.dump());
    expect({path("many.json"), "--objective", "step"},
           most + devices +
               "; give fewer with --devices, or --objective piper, which "
               "searches for up to a million");
  }
}

TEST_F(PartitionCommand, HelpAndVersion) {
  EXPECT_NE(run({"--help"}).find("--straddle"), std::string::npos);
  EXPECT_EQ(code, 0);
  EXPECT_NE(run({"--version"}).find("pipec "), std::string::npos);
  EXPECT_EQ(code, 0);
}

/// Cut off anywhere a file is refused with its line, or is a smaller graph.
TEST_F(PartitionCommand, FilesCutOffAreRefused) {
  for (const char *whole : {profile, placement, piper}) {
    const std::string text = whole;
    const bool isJson = text[0] == '{';
    int refused = 0;
    for (size_t size = 0; size < text.size(); ++size) {
      write("cut", text.substr(0, size));
      const std::string said = isJson || size == 0
                                   ? run({path("cut"), "--quiet"})
                                   : run({path("cut"), "--quiet", "--devices",
                                          "2", "--bandwidth", "1e7"});
      refused += code == 65;
      if (isJson)
        EXPECT_EQ(code, 65) << size << ": " << said;
      else
        EXPECT_TRUE(code == 0 || code == 65) << size << ": " << said;
      if (code == 65 && size > 0)
        EXPECT_NE(said.find("cut:"), std::string::npos) << size << said;
    }
    EXPECT_GT(refused, 100);
  }
}

/// Every value of a JSON file in turn is of another type, out of all bounds,
/// twice there or not at all: that is refused with a reason or means something,
/// and is no bug, whatever is asked for.
TEST_F(PartitionCommand, ValuesOfAnyKindAreRefusedOrMeanSomething) {
  const std::vector<std::string> with{"null",   "true",
                                      "\"x\"",  "[]",
                                      "{}",     "-1",
                                      "0",      "0.5",
                                      "1e15",   "1e300",
                                      "-1e300", "1e-300",
                                      "[[[]]]", "99999999999999999999"};
  for (const char *whole : {placement, piper}) {
    const json flat = json::parse(whole).flatten();
    std::map<int, int> codes;
    write("whole.json", whole);
    run({path("whole.json"), "--quiet"});
    EXPECT_EQ(code, 0);
    for (auto item = flat.begin(); item != flat.end(); ++item)
      for (size_t kind = 0; kind <= with.size(); ++kind) {
        json changed = json::parse(whole);
        const json::json_pointer at(item.key());
        if (kind < with.size())
          changed[at] = json::parse(with[kind]);
        else if (json &parent = changed[at.parent_pointer()];
                 parent.is_object())
          parent.erase(at.back());
        write("changed.json", changed.dump(1));
        const std::string what =
            item.key() + " " + (kind < with.size() ? with[kind] : "erased");
        for (const char *objective : {"", "step"}) {
          std::vector<std::string> words{path("changed.json"), "--quiet"};
          if (*objective)
            words.insert(words.end(),
                         {"--objective", objective, "--microbatches", "4"});
          std::string said;
          EXPECT_NO_THROW(said = run(words)) << what;
          ++codes[code];
          EXPECT_TRUE(code == 0 || code == 64 || code == 65 || code == 79)
              << what << " " << objective << ": " << code << " " << said;
        }
      }
    EXPECT_GT(codes[65], 100);
    EXPECT_GT(codes[0], 10);
  }
}
