#include "PartitionCommandFixture.h"

#include <nlohmann/json.hpp>

#include <map>

using namespace pipec;
using namespace pipec::plan::test;
using nlohmann::json;

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
