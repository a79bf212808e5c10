#include "compiler/plan/Topology.h"

#include "compiler/plan/TypicalCore.h"
#include "support/Failure.h"
#include "support/ParseJson.h"
#include "support/ReadFile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace pipec::plan {

int Topology::devices() const {
  int n = 1;
  for (const Level &level : levels)
    n *= level.count;
  return n;
}

int Topology::componentSize(size_t level) const {
  int n = 1;
  for (size_t l = level + 1; l < levels.size(); ++l)
    n *= levels[l].count;
  return n;
}

Link Topology::link(int a, int b) const {
  for (size_t l = 0; l < levels.size(); ++l) {
    int size = componentSize(l);
    if (a / size != b / size)
      return {levels[l].bandwidth, levels[l].latency, static_cast<int>(l)};
  }
  return {std::numeric_limits<double>::infinity(), 0,
          static_cast<int>(levels.size())};
}

Link Topology::slowestLink(const std::vector<int> &group) const {
  Link worst{std::numeric_limits<double>::infinity(), 0,
             static_cast<int>(levels.size())};
  for (size_t i = 1; i < group.size(); ++i) {
    Link l = link(group[0], group[i]);
    if (l.bandwidth < worst.bandwidth ||
        (l.bandwidth == worst.bandwidth && l.level < worst.level))
      worst = l;
  }
  return worst;
}

Link Topology::ringLink(const std::vector<int> &ring) const {
  Link slowest{std::numeric_limits<double>::infinity(), 0,
               static_cast<int>(levels.size())};
  for (size_t i = 0; i < ring.size(); ++i) {
    const Link hop = link(ring[i], ring[(i + 1) % ring.size()]);
    slowest.bandwidth = std::min(slowest.bandwidth, hop.bandwidth);
    slowest.latency = std::max(slowest.latency, hop.latency);
    slowest.level = std::min(slowest.level, hop.level);
  }
  return slowest;
}

namespace {

int parseCount(const std::string &text, const std::string &whole) {
  bool digits =
      !text.empty() && std::all_of(text.begin(), text.end(),
                                   [](char c) { return c >= '0' && c <= '9'; });
  constexpr size_t kDigits = 7; // more are too many anyway
  const std::string known =
      digits ? text.substr(std::min(text.find_first_not_of('0'), text.size()))
             : "";
  int value = known.empty()             ? 0
              : known.size() <= kDigits ? std::stoi(known)
                                        : 9999999;
  if (value < 1)
    throw Failure(
        Exit::Usage,
        "'" + whole +
            "' is not a number of devices; write M or NxM, both at least "
            "1, as 4 or 2x8");
  return value;
}

using Json = nlohmann::json;

[[noreturn]] void bad(const std::string &origin, const std::string &message) {
  throw Failure(Exit::BadPlan, "cluster " + origin + ": " + message);
}

double number(const Json &object, const char *key, const std::string &origin,
              const std::string &where) {
  if (!object.contains(key))
    bad(origin, where + " has no \"" + key + "\"");
  if (!object[key].is_number())
    bad(origin, where + " \"" + key + "\" is not a number");
  double value = object[key].get<double>();
  if (!std::isfinite(value) || value < 0)
    bad(origin, where + " \"" + key + "\" must be a number of at least 0");
  constexpr double kMost = 1e18; // sums of what is beyond mean nothing
  if (value > kMost)
    bad(origin, where + " \"" + key + "\" must be at most 1e18");
  return value;
}

double positive(const Json &object, const char *key, const std::string &origin,
                const std::string &where) {
  double value = number(object, key, origin, where);
  if (value <= 0)
    bad(origin, where + " \"" + key + "\" must be above 0");
  constexpr double kLeast = 1e-12;
  if (value < kLeast)
    bad(origin, where + " \"" + key + "\" must be at least 1e-12");
  return value;
}

std::string text(const Json &object, const char *key,
                 const std::string &otherwise, const std::string &origin,
                 const std::string &where) {
  if (!object.contains(key))
    return otherwise;
  if (!object[key].is_string())
    bad(origin, where + " \"" + key + "\" is not a text");
  return object[key].get<std::string>();
}

/// Costs of every amount of the routines in a member of the device.
void readCosts(const Json &device, const char *member,
               const std::string &origin,
               std::map<std::string, std::vector<double>> &into) {
  if (!device.contains(member))
    return;
  const Json &kernels = device[member];
  const std::string where = std::string("\"") + member + "\"";
  if (!kernels.is_object())
    bad(origin, where + " is not an object such as pipec calibrate writes");
  for (const auto &[name, costs] : kernels.items()) {
    auto amounts = kernelAmounts().find(name);
    if (amounts == kernelAmounts().end())
      bad(origin, where + " has no kernel \"" + name +
                      "\"; write the file anew with pipec calibrate");
    if (!costs.is_object())
      bad(origin, where + " \"" + name + "\" is not an object");
    for (const std::string &amount : amounts->second)
      into[name].push_back(
          number(costs, amount.c_str(), origin, "\"" + name + "\"") * 1e-9);
  }
}

/// Of growing sizes, each as dear as the one before at least.
void readPasses(const Json &device, const std::string &origin, DeviceModel &d) {
  if (!device.contains("passes"))
    return;
  const Json &passes = device["passes"];
  if (!passes.is_array())
    bad(origin, "\"passes\" is not a list such as pipec calibrate writes");
  for (const Json &entry : passes) {
    const std::string where =
        "entry " + std::to_string(d.passes.size()) + " of \"passes\"";
    if (!entry.is_object())
      bad(origin, where + " is not an object");
    const CachePass pass{1024 * positive(entry, "KiB", origin, where),
                         positive(entry, "ns_per_KiB", origin, where) * 1e-9 /
                             1024};
    if (!d.passes.empty() &&
        (pass.bytes <= d.passes.back().bytes ||
         pass.secondsPerByte < d.passes.back().secondsPerByte))
      bad(origin, where + " is smaller or cheaper than the one before; write "
                          "the file anew with pipec calibrate");
    d.passes.push_back(pass);
  }
  if (d.ownCacheBytes <= 0)
    bad(origin, "\"passes\" say nothing without \"own_cache_KiB\"; write the "
                "file anew with pipec calibrate");
}

/// Costs of the routines that calibration has timed, of every amount of each.
void readKernels(const Json &device, const std::string &origin,
                 DeviceModel &d) {
  if (device.contains("wake_us"))
    d.wakeSeconds = number(device, "wake_us", origin, "\"device\"") * 1e-6;
  if (device.contains("fork_us"))
    d.forkSeconds = number(device, "fork_us", origin, "\"device\"") * 1e-6;
  if (device.contains("fork_efficiency"))
    d.forkEfficiency =
        positive(device, "fork_efficiency", origin, "\"device\"");
  if (device.contains("tile")) {
    const Json &tile = device["tile"];
    if (!tile.is_object())
      bad(origin, "\"tile\" is not an object such as pipec calibrate writes");
    auto take = [&](const char *key, int &into) {
      const double value = positive(tile, key, origin, "\"tile\"");
      if (value != std::floor(value) || value > 1024)
        bad(origin, std::string("\"tile\" \"") + key +
                        "\" must be a whole number up to 1024");
      into = static_cast<int>(value);
    };
    take("rows", d.tile.rows);
    take("lanes", d.tile.lanes);
    take("vectors", d.tile.vectors);
  }
  if (device.contains("own_cache_KiB"))
    d.ownCacheBytes =
        1024 * number(device, "own_cache_KiB", origin, "\"device\"");
  readPasses(device, origin, d);
  readCosts(device, "kernels_ns", origin, d.kernels);
  readCosts(device, "far_kernels_ns", origin, d.farKernels);
}

/// All of its digits.
std::string countText(double count) {
  char text[64];
  std::snprintf(text, sizeof text, "%.0f", count);
  return text;
}

DeviceModel customDevice(const Json &device, const std::string &origin) {
  const std::string kind = text(device, "kind", "gpu", origin, "\"device\"");
  if (kind != "cpu" && kind != "gpu")
    bad(origin, "\"device\" \"kind\" must be \"cpu\" or \"gpu\"");
  DeviceModel d = deviceModel(kind == "cpu" ? "cpu" : "a100-80g");
  d.kind = kind;
  d.name = text(device, "name", "custom", origin, "\"device\"");
  d.describe = "from " + origin;
  const double memory = positive(device, "memory_GiB", origin, "\"device\"");
  if (memory > 1e9)
    bad(origin, "\"device\" \"memory_GiB\" must be at most 1e9");
  d.memoryBytes = static_cast<int64_t>(memory * (int64_t(1) << 30));
  if (d.memoryBytes < 1)
    bad(origin, "\"device\" \"memory_GiB\" must be a byte at least");
  d.memoryBandwidth =
      positive(device, "memory_GBps", origin, "\"device\"") * 1e9;
  if (!device.contains("flops") || !device["flops"].is_object())
    bad(origin, "\"device\" has no \"flops\" object such as {\"fp32\": 6e13}");
  const Json &flops = device["flops"];
  d.flopsF32 = positive(flops, "fp32", origin, "\"flops\"");
  auto optional = [&](const char *key, double otherwise) {
    return flops.contains(key) ? positive(flops, key, origin, "\"flops\"")
                               : otherwise;
  };
  d.flopsF64 = optional("fp64", d.flopsF32 / 2);
  d.flopsTF32 = optional("tf32", d.flopsF32);
  d.flopsBF16 = optional("bf16", d.flopsF32);
  d.flopsF16 = optional("fp16", d.flopsBF16);
  if (device.contains("half_efficiency_flops"))
    d.halfEfficiencyFlops =
        number(device, "half_efficiency_flops", origin, "\"device\"");
  if (device.contains("efficiency")) {
    if (!device["efficiency"].is_object())
      bad(origin, "\"efficiency\" is not an object such as "
                  "{\"matmul\": 0.8}");
    const Json &efficiency = device["efficiency"];
    auto share = [&](const char *key, double &into) {
      if (efficiency.contains(key))
        into = positive(efficiency, key, origin, "\"efficiency\"");
    };
    share("matmul", d.matmulEfficiency);
    share("convolution", d.convolutionEfficiency);
    share("attention", d.attentionEfficiency);
    share("memory", d.memoryEfficiency);
  }
  if (device.contains("threads"))
    d.threads = static_cast<int>(std::clamp(
        positive(device, "threads", origin, "\"device\""), 1.0, 1e4));
  if (device.contains("ring_us"))
    d.ringSeconds = number(device, "ring_us", origin, "\"device\"") * 1e-6;
  if (device.contains("seen_us"))
    d.seenSeconds = number(device, "seen_us", origin, "\"device\"") * 1e-6;
  if (device.contains("crowd_seen_us"))
    d.crowdSeenSeconds =
        number(device, "crowd_seen_us", origin, "\"device\"") * 1e-6;
  if (device.contains("step_us"))
    d.stepSeconds = number(device, "step_us", origin, "\"device\"") * 1e-6;
  if (device.contains("take_us"))
    d.takeSeconds = number(device, "take_us", origin, "\"device\"") * 1e-6;
  if (device.contains("note_us"))
    d.noteSeconds = number(device, "note_us", origin, "\"device\"") * 1e-6;
  if (device.contains("crowd_turn_us"))
    d.crowdTurnSeconds =
        number(device, "crowd_turn_us", origin, "\"device\"") * 1e-6;
  if (device.contains("task_us"))
    d.taskSeconds = number(device, "task_us", origin, "\"device\"") * 1e-6;
  if (device.contains("turn_us"))
    d.turnSeconds = number(device, "turn_us", origin, "\"device\"") * 1e-6;
  readKernels(device, origin, d);
  if (device.contains("launch_us"))
    d.launchSeconds = number(device, "launch_us", origin, "\"device\"") * 1e-6;
  if (device.contains("convolution_us"))
    d.convolutionSeconds =
        number(device, "convolution_us", origin, "\"device\"") * 1e-6;
  return d;
}

/// Nothing says what this pipec would have measured in the place of `what`.
[[noreturn]] void refuseOlder(const ParsedJson &file,
                              const nlohmann::ordered_json &at,
                              const std::string &what) {
  throw Failure(Exit::BadPlan,
                file.origin + ":" + std::to_string(file.lineOf(at)) + ": " +
                    what +
                    " is what an older pipec measured; calibrate again (pipec "
                    "calibrate … -o FILE)");
}

/// Costs of a routine are those of its amounts of today.
void refuseOlderCosts(const ParsedJson &file, const std::string &name,
                      const nlohmann::ordered_json &costs,
                      const std::vector<std::string> &amounts) {
  if (!costs.is_object())
    return;
  for (const auto &[amount, cost] : costs.items())
    if (std::find(amounts.begin(), amounts.end(), amount) == amounts.end())
      refuseOlder(file, cost, "\"" + name + "\" with \"" + amount + "\"");
  for (const std::string &amount : amounts)
    if (!costs.contains(amount))
      refuseOlder(file, costs, "\"" + name + "\" without \"" + amount + "\"");
}

/// What nobody reads is named.
void refuseUnknownMembers(const ParsedJson &file) {
  using Ordered = nlohmann::ordered_json;
  const auto refuse = [&](const Ordered &object,
                          const std::vector<std::string> &names,
                          const std::string &what) {
    file.refuseUnknown(object, names, what, Exit::BadPlan);
  };
  const auto member = [](const Ordered &object, const char *name) {
    const auto found = object.is_object() ? object.find(name) : object.end();
    return found == object.end() ? nullptr : &*found;
  };
  refuse(file.root, {"levels", "device", "cores"}, "the file");
  if (const Ordered *levels = member(file.root, "levels"))
    for (const Ordered &level : *levels)
      refuse(level, {"name", "count", "bandwidth_GBps", "latency_us"},
             "a level");
  const Ordered *device = member(file.root, "device");
  if (!device || !device->is_object())
    return;
  for (const char *old : {"receive_us", "look_share", "crowd"})
    if (const Ordered *value = member(*device, old))
      refuseOlder(file, *value, "\"" + std::string(old) + "\"");
  refuse(*device,
         {"name",
          "kind",
          "memory_GiB",
          "memory_GBps",
          "flops",
          "efficiency",
          "half_efficiency_flops",
          "launch_us",
          "convolution_us",
          "task_us",
          "turn_us",
          "ring_us",
          "seen_us",
          "crowd_seen_us",
          "step_us",
          "take_us",
          "note_us",
          "crowd_turn_us",
          "threads",
          "wake_us",
          "fork_us",
          "fork_efficiency",
          "tile",
          "kernels_ns",
          "far_kernels_ns",
          "own_cache_KiB",
          "passes"},
         "\"device\"");
  if (const Ordered *passes = member(*device, "passes"))
    for (const Ordered &entry : *passes)
      refuse(entry, {"KiB", "ns_per_KiB"}, "an entry of \"passes\"");
  if (const Ordered *flops = member(*device, "flops"))
    refuse(*flops, {"fp64", "fp32", "tf32", "fp16", "bf16"}, "\"flops\"");
  if (const Ordered *tile = member(*device, "tile"))
    refuse(*tile, {"rows", "lanes", "vectors"}, "\"tile\"");
  if (const Ordered *efficiency = member(*device, "efficiency"))
    refuse(*efficiency, {"matmul", "convolution", "attention", "memory"},
           "\"efficiency\"");
  for (const char *costs : {"kernels_ns", "far_kernels_ns"}) {
    const Ordered *kernels = member(*device, costs);
    if (!kernels || !kernels->is_object())
      continue;
    for (const auto &[name, costs] : kernels->items())
      if (auto known = kernelAmounts().find(name);
          known != kernelAmounts().end())
        refuseOlderCosts(file, name, costs, known->second);
  }
}

Json kernelsOf(const std::map<std::string, std::vector<double>> &all) {
  Json kernels = Json::object();
  for (const auto &[name, costs] : all) {
    const std::vector<std::string> &amounts = kernelAmounts().at(name);
    for (size_t i = 0; i < costs.size(); ++i)
      kernels[name][amounts[i]] = costs[i] * 1e9;
  }
  return kernels;
}

} // namespace

std::optional<Topology> partOf(const Topology &topology) {
  for (size_t l = 0; l < topology.levels.size(); ++l)
    if (const int count = topology.levels[l].count; count > 1) {
      Topology part = topology;
      part.levels[l].count = count % 2 ? count - 1 : count / 2;
      return part;
    }
  return std::nullopt;
}

Topology gridTopology(const std::string &text, const DeviceModel &device) {
  size_t x = text.find('x');
  int servers =
      x == std::string::npos ? 1 : parseCount(text.substr(0, x), text);
  int each =
      parseCount(x == std::string::npos ? text : text.substr(x + 1), text);
  if (static_cast<int64_t>(servers) * each > 1'000'000)
    throw Failure(Exit::Usage,
                  "'" + text + "' is more than a million devices; give fewer");
  Topology t;
  t.device = device;
  t.levels = {{"server", servers, device.interBandwidth, device.interLatency},
              {device.kind, each, device.intraBandwidth, device.intraLatency}};
  return t;
}

int Topology::caches() const {
  const int64_t inServer =
      cores > 0
          ? std::min<int64_t>(cores, int64_t(serverSize()) * device.threads)
          : serverSize();
  return static_cast<int>(std::max<int64_t>(1, inServer) *
                          (devices() / serverSize()));
}

Topology shareCores(Topology topology, int cores) {
  topology.cores = cores;
  topology.device =
      withThreads(topology.device, std::max(1, cores / topology.serverSize()));
  return topology;
}

static Topology clusterOf(const std::string &json, const std::string &origin) {
  const ParsedJson parsed = parseJson(json, "cluster " + origin, Exit::BadPlan);
  refuseUnknownMembers(parsed);
  const Json root(parsed.root);
  if (!root.is_object() || !root.contains("levels") ||
      !root["levels"].is_array() || root["levels"].empty())
    bad(origin,
        "needs \"levels\": a list with one entry per level, outermost first");
  Topology t;
  for (size_t i = 0; i < root["levels"].size(); ++i) {
    const Json &entry = root["levels"][i];
    std::string where = "level " + std::to_string(i);
    if (!entry.is_object())
      bad(origin, where + " is not an object");
    double count = positive(entry, "count", origin, where);
    if (count != std::floor(count) || count > 1e6)
      bad(origin, where + " \"count\" must be a whole number up to a million");
    double latency = entry.contains("latency_us")
                         ? number(entry, "latency_us", origin, where)
                         : 0.0;
    t.levels.push_back({text(entry, "name", where, origin, where),
                        static_cast<int>(count),
                        positive(entry, "bandwidth_GBps", origin, where) * 1e9,
                        latency * 1e-6});
  }
  double devices = 1;
  for (const Level &level : t.levels)
    devices *= level.count;
  if (devices > kMostDevices)
    bad(origin, "its levels make " + countText(devices) +
                    " devices; a plan has at most " +
                    std::to_string(kMostDevices) +
                    ": give a smaller \"count\"");
  if (!root.contains("device"))
    bad(origin,
        "needs \"device\": the name of a device model or a description, of "
        "all devices");
  if (root["device"].is_string()) {
    try {
      t.device = namedDevice(root["device"].get<std::string>());
    } catch (const Failure &f) {
      bad(origin, f.what());
    }
  } else if (root["device"].is_object()) {
    t.device = customDevice(root["device"], origin);
  } else {
    bad(origin, "\"device\" is neither a name nor an object: all devices are "
                "of one kind; give the slowest");
  }
  if (root.contains("cores")) {
    double cores = positive(root, "cores", origin, "the file");
    if (cores != std::floor(cores) || cores > 1e6)
      bad(origin, "\"cores\" must be a whole number up to a million");
    if (t.device.kind != "cpu")
      bad(origin, "\"cores\" is for devices of \"kind\": \"cpu\"");
    return shareCores(std::move(t), static_cast<int>(cores));
  }
  return t;
}

Topology parseTopology(const std::string &json, const std::string &origin) {
  try {
    return clusterOf(json, origin);
  } catch (const Failure &failure) {
    const std::string what = failure.what();
    if (what.find("; ") != what.npos) // it says itself what helps
      throw;
    throw Failure(failure.code,
                  what + "; docs/planner.md has the format, and pipec "
                         "calibrate -o FILE writes such a file");
  }
}

Topology readTopology(const std::string &path) {
  return parseTopology(readFile(path, "the cluster file"), path);
}

std::string writeTopology(const Topology &topology) {
  nlohmann::ordered_json root;
  root["levels"] = nlohmann::ordered_json::array();
  for (const Level &level : topology.levels)
    root["levels"].push_back({{"name", level.name},
                              {"count", level.count},
                              {"bandwidth_GBps", level.bandwidth / 1e9},
                              {"latency_us", level.latency * 1e6}});
  if (topology.cores > 0)
    root["cores"] = topology.cores;
  const DeviceModel &d = topology.device;
  root["device"] = {
      {"name", d.name},
      {"kind", d.kind},
      {"memory_GiB", static_cast<double>(d.memoryBytes) / (int64_t(1) << 30)},
      {"flops",
       {{"fp64", d.flopsF64},
        {"fp32", d.flopsF32},
        {"tf32", d.flopsTF32},
        {"fp16", d.flopsF16},
        {"bf16", d.flopsBF16}}},
      {"memory_GBps", d.memoryBandwidth / 1e9},
      {"threads", d.threads},
      {"launch_us", std::round(d.launchSeconds * 1e12) / 1e6},
      {"convolution_us", std::round(d.convolutionSeconds * 1e12) / 1e6},
      {"task_us", d.taskSeconds * 1e6},
      {"turn_us", d.turnSeconds * 1e6},
      {"half_efficiency_flops", d.halfEfficiencyFlops},
      {"efficiency",
       {{"matmul", d.matmulEfficiency},
        {"convolution", d.convolutionEfficiency},
        {"attention", d.attentionEfficiency},
        {"memory", d.memoryEfficiency}}}};
  if (d.ringSeconds > 0)
    root["device"]["ring_us"] = d.ringSeconds * 1e6;
  if (d.ringSeconds > 0)
    root["device"]["seen_us"] = d.seenSeconds * 1e6;
  if (d.crowdSeenSeconds != DeviceModel().crowdSeenSeconds)
    root["device"]["crowd_seen_us"] = d.crowdSeenSeconds * 1e6;
  if (d.stepSeconds > 0)
    root["device"]["step_us"] = d.stepSeconds * 1e6;
  if (d.takeSeconds > 0)
    root["device"]["take_us"] = d.takeSeconds * 1e6;
  if (d.noteSeconds > 0)
    root["device"]["note_us"] = d.noteSeconds * 1e6;
  if (d.crowdTurnSeconds > 0)
    root["device"]["crowd_turn_us"] = d.crowdTurnSeconds * 1e6;
  if (d.ownCacheBytes > 0)
    root["device"]["own_cache_KiB"] = d.ownCacheBytes / 1024;
  if (!d.farKernels.empty())
    root["device"]["far_kernels_ns"] = kernelsOf(d.farKernels);
  for (const CachePass &pass : d.passes)
    root["device"]["passes"].push_back(
        {{"KiB", pass.bytes / 1024},
         {"ns_per_KiB", pass.secondsPerByte * 1e9 * 1024}});
  if (!d.kernels.empty()) {
    root["device"]["wake_us"] = d.wakeSeconds * 1e6;
    root["device"]["fork_us"] = d.forkSeconds * 1e6;
    root["device"]["fork_efficiency"] = d.forkEfficiency;
    root["device"]["tile"] = {{"rows", d.tile.rows},
                              {"lanes", d.tile.lanes},
                              {"vectors", d.tile.vectors}};
    root["device"]["kernels_ns"] = kernelsOf(d.kernels);
  }
  return root.dump(2) + "\n";
}

} // namespace pipec::plan
