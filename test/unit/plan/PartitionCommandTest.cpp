#include "PartitionCommandFixture.h"
#include "PipeDreamBrute.h"
#include "RandomGraphs.h"

#include <nlohmann/json.hpp>

#include <array>
#include <fstream>
#include <set>
#include <sstream>

using namespace pipec;
using namespace pipec::plan::test;
using nlohmann::json;

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

TEST_F(PartitionCommand, InputsAndUnreadItemsHaveAStage) {
  write("items.txt", std::string(profile) +
                         profileLine("n5", "__getitem__(0)", 40, 8, 0) +
                         "\tn4 -- n5\n");
  std::vector<std::string> args{
      path("items.txt"), "--devices", "1", "--bandwidth", "1e9",
      "--format",        "json"};
  json r = json::parse(run(args));
  EXPECT_DOUBLE_EQ(r["objective"].get<double>(), 24);
  EXPECT_EQ(r["stages"][0]["left_out"], (json{"n0", "n5"})) << r;
}

/// Branches of layers that differ, from one layer to another.
static std::string branches(int count, int layers, uint64_t seed) {
  Random random(seed);
  std::string text, edges;
  int nodes = 0;
  auto node = [&](const std::vector<int> &from) {
    const std::string id = "n" + std::to_string(nodes);
    text += profileLine(id, "Conv2d", random.real(1, 20), random.real(1e5, 1e6),
                        random.real(0, 1e8));
    for (int u : from)
      edges += "\tn" + std::to_string(u) + " -- " + id + "\n";
    return nodes++;
  };
  const int first = node({});
  std::vector<int> ends;
  for (int b = 0; b < count; ++b) {
    int last = first;
    for (int l = 0; l < layers; ++l)
      last = node({last});
    ends.push_back(last);
  }
  node(ends);
  return text + edges;
}

TEST_F(PartitionCommand, ManyBranchesAreCutWell) {
  // 6,563 cuts, all of which are looked at, and 100,002, of which the best 16
  // stages are within a few percent of equal ones.
  write("some.txt", branches(4, 8, 3));
  json some = json::parse(run({path("some.txt"), "--devices", "8",
                               "--bandwidth", "1e10", "--format", "json"}));
  EXPECT_TRUE(some["exact"].get<bool>()) << some;
  write("many.txt", branches(8, 12, 4));
  for (const char *devices : {"16", "2x8"}) {
    json many = json::parse(run({path("many.txt"), "--devices", devices,
                                 "--bandwidth", "1e10", "--format", "json"}));
    EXPECT_LT(many["objective"].get<double>(),
              1.03 * many["lower_bound"].get<double>())
        << devices;
    EXPECT_LT(many["seconds"].get<double>(), 5);
  }
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
  std::vector<std::string> words = onProfile("4", "pipedream");
  expect(words,
         "whatever their number: leave it out, or take --objective step");
  words = onProfile("1025", "pipedream");
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
