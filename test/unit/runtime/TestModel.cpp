//===- TestModel.cpp - plans for the stage programs of stage.c ------------===//
#include "test/unit/runtime/TestModel.h"
#include "runtime/WireFormat.h"
#include "runtime/program/Memory.h"
#include "runtime/program/Sequence.h"
#include "runtime/program/Sha256.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>

namespace pipec::test {

namespace fs = std::filesystem;
using namespace pipec::plan;

namespace {

/// Values in [-1, 1), a function of two numbers.
float pseudo(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15ull + b * 0xbf58476d1ce4e5b9ull + 1;
  x ^= x >> 31, x *= 0x94d049bb133111ebull, x ^= x >> 29;
  return static_cast<float>(static_cast<double>(x % 20001) / 10000.0 - 1.0);
}

uint64_t code(const std::string &name) {
  uint64_t value = 7;
  for (char c : name)
    value = value * 31 + static_cast<unsigned char>(c);
  return value;
}

/// What stage.c, compiled for these layers, says about its layout.
class Layout {
public:
  Layout(int lo, int hi, int microbatches)
      : file("stage_" + std::to_string(lo) + "_" + std::to_string(hi) + "_" +
             std::to_string(microbatches) + ".so") {
    void *library =
        dlopen((PIPEC_TEST_STAGES "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      throw std::runtime_error(dlerror());
    ask = reinterpret_cast<int64_t (*)(const char *, int64_t)>(
        dlsym(library, "test_layout"));
  }
  int64_t operator()(const std::string &what, int layer = 0) const {
    return ask(what.c_str(), layer);
  }
  const std::string file;

private:
  int64_t (*ask)(const char *, int64_t);
};

/// (offset, bytes) of the raw data of every initializer.
std::map<std::string, std::pair<int64_t, int64_t>>
initializers(const std::string &path) {
  std::map<std::string, std::pair<int64_t, int64_t>> result;
  const wire::MappedFile file(path);
  wire::forEach(file.bytes(), path, [&](const wire::Field &graph) {
    wire::forEach(graph.payload, path, [&](const wire::Field &tensor) {
      std::string name;
      wire::forEach(tensor.payload, path, [&](const wire::Field &field) {
        if (field.number == 8)
          name = field.payload.text();
        if (field.number == 9)
          result[name] = {field.payload.begin - file.bytes().begin,
                          field.payload.size()};
      });
    });
  });
  return result;
}

class Builder {
public:
  Builder(const Scenario &setup, const std::string &folder)
      : setup(setup), folder(folder) {
    for (int s = 0; s < setup.stages(); ++s)
      layouts.emplace_back(setup.cuts[s], setup.cuts[s + 1],
                           setup.microbatches);
  }

  Plan build() {
    plan.pipec_version = "test";
    plan.model = {"model.onnx", "", 18, {"x"}, {"o"}};
    plan.training.loss = "test";
    plan.training.optimizer = {"sgd", {{"lr", 0.05}, {"momentum", 0.9}}};
    plan.training.microbatches = setup.microbatches;
    plan.training.microbatch_size = kBatch;
    plan.training.clip_norm = setup.clip;
    plan.cluster = {"cpu", "test", 1, 4};
    plan.schedule = setup.schedule;
    plan.strategy = {setup.schedule,
                     setup.schedule,
                     setup.stream() ? "stash" : "latest",
                     setup.stream() ? "round" : "step",
                     !setup.stream(),
                     false};
    plan.strategy.post_validation = setup.validated;
    plan.predicted = {0.001, 1000, 0.1, 0};
    fs::create_directories(folder + "/stages");
    weights();
    inputs();
    for (int s = 0; s < setup.stages(); ++s)
      stage(s);
    edges();
    ranks();
    return plan;
  }

private:
  /// The model file: an ONNX file as far as its initializers go.
  void weights() {
    std::string graph;
    auto add = [&](const std::string &name, const std::string &role,
                   std::vector<int64_t> shape) {
      const std::vector<float> values = initialValue(name);
      Weight weight;
      weight.name = name, weight.dtype = "float32", weight.role = role;
      weight.shape = std::move(shape);
      weight.bytes = static_cast<int64_t>(values.size()) * 4;
      weight.exported = true;
      plan.weights.push_back(weight);
      std::string tensor;
      for (int64_t dim : weight.shape) {
        wire::putTag(tensor, 1, 0);
        wire::putVarint(tensor, static_cast<uint64_t>(dim));
      }
      wire::putTag(tensor, 2, 0);
      wire::putVarint(tensor, 1);
      wire::putBytes(tensor, 8, name);
      wire::putBytes(
          tensor, 9,
          {reinterpret_cast<const char *>(values.data()), values.size() * 4});
      wire::putBytes(graph, 5, tensor);
    };
    for (const std::string &name : weightNames(setup))
      add(name, "weight",
          name[0] == 'W' ? std::vector<int64_t>{kWidth, kWidth}
                         : std::vector<int64_t>{kWidth});
    add("c", "frozen", {kWidth});
    for (int l = 0; l < kLayers; ++l)
      add("mean" + std::to_string(l), "state", {kWidth});
    const std::string path = folder + "/model.onnx";
    std::string model;
    wire::putBytes(model, 7, graph);
    std::ofstream(path, std::ios::binary) << model;
    plan.files.push_back({"model.onnx", path, sha256OfFile(path),
                          static_cast<int64_t>(model.size())});
    for (auto &[name, place] : initializers(path)) {
      Weight &weight = plan.weights[find(name)];
      weight.source = {0, place.first, place.second};
    }
  }

  void inputs() {
    plan.inputs = {{"x", "float32", {kBatch, kWidth}, kBatch * kWidth * 4},
                   {"target", "float32", {kBatch, kWidth}, kBatch * kWidth * 4},
                   {"label", "int64", {kBatch}, kBatch * 8}};
    plan.inputs[2].upper = kWidth;
  }

  int find(const std::string &name) const {
    for (size_t i = 0; i < plan.weights.size(); ++i)
      if (plan.weights[i].name == name)
        return static_cast<int>(i);
    throw std::runtime_error("no weight " + name);
  }

  /// Forwards of a replica before its first backward, as PipeDream counts.
  int delay(int s) const {
    size_t from = 0;
    for (int q = s; q < setup.stages(); ++q)
      from += setup.ranks[q].size();
    return static_cast<int>((from - 1) / setup.ranks[s].size());
  }
  int share(int s) const {
    const auto r = static_cast<int>(setup.ranks[s].size());
    return (setup.microbatches + r - 1) / r;
  }
  int inFlight(int s) const {
    if (setup.stream())
      return delay(s) + 1;
    if (setup.schedule == "gpipe")
      return share(s);
    return std::min(share(s), delay(s) + (setup.schedule == "split" ? 2 : 1));
  }
  std::map<std::string, int> slots(int s) const {
    const int both = std::min(2, share(s));
    std::map<std::string, int> result = {{"in", inFlight(s)},
                                         {"stash", inFlight(s)},
                                         {"out", both},
                                         {"grad_in", both},
                                         {"grad_out", both}};
    if (setup.schedule == "split")
      result["wstash"] = both;
    result["stats"] = setup.stream() ? inFlight(s) : setup.microbatches;
    return result;
  }

  void stage(int s) {
    const Layout &at = layouts[s];
    Stage stage;
    stage.id = s;
    stage.ranks = setup.ranks[s];
    stage.library = "stages/stage" + std::to_string(s) + ".so";
    fs::copy_file(PIPEC_TEST_STAGES "/" + at.file, folder + "/" + stage.library,
                  fs::copy_options::overwrite_existing);
    stage.sha256 = sha256OfFile(folder + "/" + stage.library);
    stage.first_node = setup.cuts[s];
    stage.last_node = setup.cuts[s + 1] - 1;
    stage.cost = {0.0001, 0.0001, 0.0001};
    stage.split_backward = setup.schedule == "split";
    stage.tracks = true;
    stage.computes_loss = s == setup.stages() - 1;
    stage.warmup = setup.stream() ? delay(s) : 0;
    stage.versions = stage.warmup + 1;
    for (const char *name :
         {"workspace", "constants", "weights", "gradients", "optimizer",
          "state", "stats", "in", "stash", "out", "grad_in", "grad_out"})
      stage.regions[name].bytes = at(name);
    if (setup.schedule == "split")
      stage.regions["wstash"].bytes = at("wstash");
    for (auto &[name, count] : slots(s))
      stage.regions[name].slots = count;
    const bool first = s == 0, last = stage.computes_loss;
    if (first)
      stage.inputs.push_back({0, at("at x")});
    if (last) {
      stage.inputs.push_back({1, at("at target")});
      stage.inputs.push_back({2, at("at label")});
    }
    auto trained = [&](const std::string &name, int64_t offset,
                       std::vector<std::pair<int, int64_t>> uses) {
      stage.weights.push_back(
          {find(name), "weights", offset, std::move(uses), {{"m", offset}}});
    };
    for (int l = setup.cuts[s]; l < setup.cuts[s + 1]; ++l) {
      const std::string id = std::to_string(l);
      trained("W" + id, at("at W", l), {{0, at("at W", l)}});
      trained("b" + id, at("at b", l), {{0, at("at b", l)}});
      stage.weights.push_back(
          {find("mean" + id), "state", at("at mean", l), {}, {}});
    }
    if (first && last)
      trained("e", at("at e"), {{0, at("at e use 0")}, {1, at("at e use 1")}});
    else if (first)
      trained("e", at("at e"), {{0, at("at e use 0")}});
    else if (last && setup.tied)
      trained("e", at("at e"), {{1, at("at e use 1")}});
    else if (last)
      trained("f", at("at e"), {{0, at("at e use 1")}});
    if (first)
      stage.weights.push_back({find("c"), "constants", 0, {}, {}});
    plan.stages.push_back(stage);
  }

  void edges() {
    const int last = setup.stages() - 1;
    auto add = [&](const std::string &value, bool backward, int from,
                   const std::string &region, int64_t offset, int to,
                   int64_t toOffset) {
      plan.edges.push_back({static_cast<int>(plan.edges.size()), value,
                            backward, kBatch * kWidth * 4, from, region, offset,
                            to, backward ? "grad_in" : "in", toOffset});
    };
    for (int s = 0; s < last; ++s) {
      const std::string name = "z" + std::to_string(setup.cuts[s + 1] - 1);
      add(name, false, s, "out", 0, s + 1, layouts[s + 1]("at h"));
      add("d " + name, true, s + 1, "grad_out", 0, s, 0);
    }
    if (last > 0) {
      add("skip", false, 0, "stash", layouts[0]("at z0"), last,
          layouts[last]("at skip"));
      add("d skip", true, last, "grad_out",
          layouts[last]("at skip gradient out"), 0,
          layouts[0]("at skip gradient in"));
    }
  }

  Action action(const std::string &kind, int s, int microbatch) const {
    static const std::map<std::string, std::vector<std::string>> touched = {
        {"F", {"in", "stash", "out"}},
        {"B", {"in", "stash", "grad_in", "grad_out"}},
        {"I", {"in", "stash", "grad_in", "grad_out", "wstash"}},
        {"W", {"in", "stash", "grad_in", "wstash"}}};
    Action result{kind, s, microbatch, {}};
    const auto r = static_cast<int>(setup.ranks[s].size());
    const auto counts = slots(s);
    for (const std::string &name : touched.at(kind))
      if (counts.count(name) && counts.at(name) > 1)
        result.slots.set(plan::regionNamed(name),
                         microbatch / r % counts.at(name));
    return result;
  }

  /// The tasks of one stage on one rank.
  std::vector<Action> stageActions(int s, int rank) const {
    std::vector<int> mine;
    for (int k = 0; k < setup.microbatches; ++k)
      if (setup.ranks[s][k % setup.ranks[s].size()] == rank)
        mine.push_back(k);
    const auto n = static_cast<int>(mine.size());
    const int ahead = setup.schedule == "gpipe" ? n : std::min(n, delay(s));
    const bool split = setup.schedule == "split";
    std::vector<Action> actions;
    for (int j = 0; j < ahead; ++j)
      actions.push_back(action("F", s, mine[j]));
    for (int j = 0; j < n; ++j) {
      if (j + ahead < n)
        actions.push_back(action("F", s, mine[j + ahead]));
      actions.push_back(action(split ? "I" : "B", s, mine[j]));
      if (split && j > 0) // the weight gradient one later
        actions.push_back(action("W", s, mine[j - 1]));
    }
    if (split && n > 0)
      actions.push_back(action("W", s, mine[n - 1]));
    return actions;
  }

  void ranks() {
    int count = 0;
    for (auto &ranks : setup.ranks)
      for (int rank : ranks)
        count = std::max(count, rank + 1);
    for (int r = 0; r < count; ++r) {
      Rank rank;
      rank.rank = rank.device = r;
      for (int s = 0; s < setup.stages(); ++s)
        if (std::count(setup.ranks[s].begin(), setup.ranks[s].end(), r))
          rank.stages.push_back(s);
      rank.program.kind = setup.stream() ? "stream" : "step";
      if (!setup.stream()) {
        // Chunks of one rank: forwards upwards, backwards downwards.
        auto keep = [&](int s, bool forwards) {
          for (Action &action : stageActions(s, r))
            if (rank.stages.size() == 1 || (action.kind == "F") == forwards)
              rank.program.actions.push_back(action);
        };
        for (int s : rank.stages)
          keep(s, true);
        if (rank.stages.size() > 1)
          for (auto s = rank.stages.rbegin(); s != rank.stages.rend(); ++s)
            keep(*s, false);
      }
      plan.ranks.push_back(rank);
    }
    for (Rank &rank : plan.ranks) {
      const RankMemory memory = rankMemory(plan, rank.rank);
      rank.peak_bytes = memory.total();
      rank.weights_bytes = memory.weights;
      rank.gradients_bytes = memory.gradients;
      rank.optimizer_bytes = memory.optimizer;
      rank.stash_bytes = memory.stash;
      rank.workspace_bytes = memory.workspace;
      rank.other_bytes = memory.other;
    }
  }

  const Scenario &setup;
  const std::string folder;
  std::vector<Layout> layouts;
  Plan plan;
};

template <class T>
void writeNpy(const std::string &path, const std::string &descr,
              const std::string &shape, const std::vector<T> &values) {
  std::string header = "{'descr': '" + descr +
                       "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00", 8);
  const auto length = static_cast<uint16_t>(header.size());
  file.write(reinterpret_cast<const char *>(&length), 2);
  file << header;
  file.write(reinterpret_cast<const char *>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

void writeData(const std::string &folder) {
  std::vector<float> x, target;
  for (int row = 0; row < kSamples; ++row) {
    for (float value : sampleX(row))
      x.push_back(value);
    for (float value : sampleTarget(row))
      target.push_back(value);
  }
  const std::string shape =
      "(" + std::to_string(kSamples) + ", " + std::to_string(kWidth) + ")";
  writeNpy(folder + "/x.npy", "<f4", shape, x);
  writeNpy(folder + "/target.npy", "<f4", shape, target);
  writeNpy(folder + "/label.npy", "<i8", "(" + std::to_string(kSamples) + ",)",
           sampleLabels());
}

} // namespace

const std::vector<NamedScenario> &scenarios() {
  static const std::vector<NamedScenario> all = [] {
    std::vector<NamedScenario> result;
    auto add = [&](const char *name, std::vector<int> cuts,
                   std::vector<std::vector<int>> ranks, const char *schedule,
                   int microbatches = 4, double clip = 0, bool tied = true) {
      Scenario setup{std::move(cuts), std::move(ranks), microbatches, schedule};
      setup.clip = clip, setup.tied = tied;
      result.push_back({name, setup});
    };
    add("one", {0, 4}, {{0}}, "1f1b");
    add("two", {0, 2, 4}, {{0}, {1}}, "1f1b");
    add("two_gpipe", {0, 2, 4}, {{0}, {1}}, "gpipe");
    add("three", {0, 1, 3, 4}, {{0}, {1}, {2}}, "1f1b");
    add("three_split", {0, 1, 3, 4}, {{0}, {1}, {2}}, "split");
    add("four", {0, 1, 2, 3, 4}, {{0}, {1}, {2}, {3}}, "1f1b");
    add("four_gpipe", {0, 1, 2, 3, 4}, {{0}, {1}, {2}, {3}}, "gpipe");
    add("four_clip", {0, 1, 2, 3, 4}, {{0}, {1}, {2}, {3}}, "1f1b", 4, 0.5);
    add("one_clip", {0, 4}, {{0}}, "1f1b", 4, 0.5);
    add("chunks", {0, 1, 2, 3, 4}, {{0}, {1}, {0}, {1}}, "gpipe");
    add("replicas_2_1", {0, 2, 4}, {{0, 1}, {2}}, "1f1b");
    add("replicas_1_2_1", {0, 1, 3, 4}, {{0}, {1, 2}, {3}}, "1f1b");
    add("replicas_3_1", {0, 2, 4}, {{0, 1, 2}, {3}}, "1f1b", 6);
    add("replicas_2_2_clip", {0, 2, 4}, {{0, 1}, {2, 3}}, "gpipe", 4, 0.5);
    add("data_parallel", {0, 4}, {{0, 1}}, "gpipe");
    // Norms are about 0.3 to 0.6: never clipped, the first rank's gradients
    // ask for it, those of later ones do.
    using Limit = std::pair<const char *, double>;
    for (auto [name, clip] :
         {Limit{"validated_never", 1e6}, Limit{"validated_first", 0.1},
          Limit{"validated_late", 0.45}, Limit{"validated_free", 0.0}}) {
      add(name, {0, 1, 3, 4}, {{0}, {1}, {2}}, "split", 4, clip, false);
      result.back().setup.validated = true;
    }
    add("validated_one", {0, 4}, {{0}}, "split", 4, 0.5);
    result.back().setup.validated = true;
    add("validated_four", {0, 1, 2, 3, 4}, {{0}, {1}, {2}, {3}}, "1f1b", 4,
        0.45);
    result.back().setup.validated = true;
    add("stream_one", {0, 4}, {{0}}, "stream", 1);
    add("stream_two", {0, 2, 4}, {{0}, {1}}, "stream", 1);
    add("stream_two_untied", {0, 2, 4}, {{0}, {1}}, "stream", 1, 0, false);
    add("stream_three", {0, 1, 3, 4}, {{0}, {1}, {2}}, "stream", 1, 0, false);
    add("stream_four", {0, 1, 2, 3, 4}, {{0}, {1}, {2}, {3}}, "stream", 1, 0,
        false);
    add("stream_2_1", {0, 2, 4}, {{0, 1}, {2}}, "stream", 1, 0, false);
    add("stream_3_1", {0, 2, 4}, {{0, 1, 2}, {3}}, "stream", 1, 0, false);
    add("stream_1_2_1", {0, 1, 3, 4}, {{0}, {1, 2}, {3}}, "stream", 1, 0,
        false);
    add("stream_2_2", {0, 2, 4}, {{0, 1}, {2, 3}}, "stream", 1);
    return result;
  }();
  return all;
}

const Scenario &scenarioNamed(const std::string &name) {
  for (const NamedScenario &entry : scenarios())
    if (name == entry.name)
      return entry.setup;
  throw std::runtime_error("no setup " + name);
}

std::vector<std::string> weightNames(const Scenario &setup) {
  std::vector<std::string> names;
  for (int l = 0; l < kLayers; ++l) {
    names.push_back("W" + std::to_string(l));
    names.push_back("b" + std::to_string(l));
  }
  names.emplace_back("e");
  if (!setup.tied)
    names.emplace_back("f");
  return names;
}

std::vector<float> initialValue(const std::string &name) {
  if (name == "f")
    return initialValue("e");
  std::vector<float> values(name[0] == 'W' ? kWidth * kWidth : kWidth);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = pseudo(code(name), i) * (name[0] == 'W' ? 0.3f : 0.1f) +
                (name == "e" || name == "c" ? 1.0f : 0.0f);
  if (name.rfind("mean", 0) == 0)
    std::fill(values.begin(), values.end(), 0.0f);
  return values;
}

std::map<std::string, std::vector<float>> readModel(const std::string &path) {
  std::map<std::string, std::vector<float>> result;
  const wire::MappedFile file(path);
  for (auto &[name, place] : initializers(path)) {
    result[name].resize(static_cast<size_t>(place.second) / 4);
    std::memcpy(result[name].data(), file.bytes().begin + place.first,
                static_cast<size_t>(place.second));
  }
  return result;
}

std::vector<float> sampleX(int64_t row) {
  std::vector<float> values(kWidth);
  for (int i = 0; i < kWidth; ++i)
    values[i] = pseudo(static_cast<uint64_t>(row) + 1000, i);
  return values;
}

std::vector<float> sampleTarget(int64_t row) {
  std::vector<float> values(kWidth);
  for (int i = 0; i < kWidth; ++i)
    values[i] = pseudo(static_cast<uint64_t>(row) + 2000, i);
  return values;
}

std::vector<int64_t> sampleLabels() {
  std::vector<int64_t> labels(kSamples);
  for (int row = 0; row < kSamples; ++row)
    labels[row] = row * 5 % kWidth;
  return labels;
}

plan::Plan writePlan(const Scenario &setup, const std::string &folder) {
  fs::create_directories(folder);
  Plan plan = Builder(setup, folder).build();
  std::ofstream(folder + "/plan.json") << toJson(plan);
  writeData(folder);
  return plan;
}

std::vector<std::string> dataArguments(const std::string &folder) {
  std::vector<std::string> arguments;
  for (const char *name : {"x", "target", "label"}) {
    arguments.emplace_back("--data");
    arguments.push_back(std::string(name) + "=" + folder + "/" + name + ".npy");
  }
  return arguments;
}

std::string freshFolder(const std::string &name) {
  // Test programs run side by side.
  const fs::path path =
      fs::path(PIPEC_TEST_FOLDER) / program_invocation_short_name / name;
  fs::remove_all(path);
  fs::create_directories(path);
  return path.string();
}

} // namespace pipec::test
