//===- ScheduleOptions.cpp - command line of `pipec schedule` -------------===//
#include "compiler/driver/ScheduleOptions.h"

#include "support/CommandLine.h"
#include "support/Failure.h"
#include "support/OptionChecks.h"
#include "support/ParseJson.h"
#include "support/ReadFile.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

namespace pipec {
namespace {

using schedule::DeviceCosts;
using schedule::ScheduleRequest;

/// "A=1,B=2" with keys from `known`; absent keys keep their value.
void readPairs(const std::string &option, const std::string &text,
               const std::map<std::string, double *> &known) {
  std::stringstream parts(text);
  std::set<std::string> seen;
  for (std::string part; std::getline(parts, part, ',');) {
    auto equals = part.find('=');
    auto key = known.find(part.substr(0, equals));
    if (key != known.end() && !seen.insert(key->first).second)
      throw Failure(Exit::Usage,
                    option + ": " + key->first + " is given twice");
    double value = 0;
    std::size_t used = 0;
    try {
      if (equals != std::string::npos)
        value = std::stod(part.substr(equals + 1), &used);
    } catch (const std::exception &) {
      used = 0;
    }
    std::string keys;
    for (const auto &[name, target] : known)
      keys += (keys.empty() ? "" : ", ") + name;
    if (key == known.end() || used == 0 || equals + 1 + used != part.size())
      throw Failure(Exit::Usage, option + ": '" + part +
                                     "' is not KEY=NUMBER with a key of " +
                                     keys);
    *key->second = value;
  }
}

/// Beyond it doubles count no longer in ones: a makespan would not be exact.
constexpr double kMostNumber = 1e15;

void checkTime(const std::string &what, double value, bool positive) {
  if (!(value <= kMostNumber) || value < 0 || (positive && value == 0))
    throw Failure(Exit::Usage,
                  "--time: " + what + " must be " +
                      (positive ? "greater than 0" : "at least 0") +
                      " and at most 1e15");
}

void readTimes(const std::string &text, ScheduleRequest &request) {
  double f = 1, b = 1, w = 1, comm = 0;
  readPairs("--time", text, {{"F", &f}, {"B", &b}, {"W", &w}, {"comm", &comm}});
  checkTime("F", f, true);
  checkTime("B", b, false);
  checkTime("W", w, false);
  checkTime("comm", comm, false);
  DeviceCosts &costs = request.costs;
  costs.forward.assign(request.devices, f);
  costs.backwardInput.assign(request.devices, b);
  costs.backwardWeight.assign(request.devices, w);
  costs.comm = {comm};
}

void readMemory(const std::string &text, ScheduleRequest &request) {
  double f = 1, b = 0, w = -1;
  readPairs("--memory", text, {{"F", &f}, {"B", &b}, {"W", &w}});
  for (double value : {f, b, w})
    if (!(std::abs(value) <= kMostNumber))
      throw Failure(Exit::Usage, "--memory: numbers must be within ±1e15");
  if (!(f >= 0))
    throw Failure(Exit::Usage, "--memory: F must be at least 0");
  DeviceCosts &costs = request.costs;
  costs.memoryForward.assign(request.devices, f);
  costs.memoryInput.assign(request.devices, b);
  costs.memoryWeight.assign(request.devices, w);
}

std::vector<int> readList(const std::string &option, const std::string &text) {
  std::vector<int> list;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    char *end = nullptr;
    long value = std::strtol(part.c_str(), &end, 10);
    if (part.empty() || *end || value < 1 || value > 1 << 24)
      throw Failure(Exit::Usage, option + ": '" + part +
                                     "' is no count; write counts separated "
                                     "by commas, one per stage");
    list.push_back(static_cast<int>(value));
  }
  return list;
}

/// What is typed, before it is understood.
struct Typed {
  std::string chunks = "", time, memory, metric = "makespan", format;
  std::string warmup, replicas;
  double limit = -1;
};

void declare(CLI::App &app, ScheduleOptions &o, Typed &typed) {
  ScheduleRequest &r = o.request;
  app.add_option("name", o.name, "a schedule (pipec list schedules) or auto");
  app.add_option("--stages", r.devices, "devices, one stage each or --chunks")
      ->required()
      ->check(aCount(1 << 16));
  app.add_option("--microbatches", r.microbatches,
                 "microbatches in an optimizer step; needed, but for --check")
      ->check(aCount(1 << 30));
  app.add_option("--chunks", typed.chunks,
                 "stages per device where the schedule has a choice; auto: the "
                 "best up to 4");
  app.add_option("--time", typed.time,
                 "F=1,B=1,W=1,comm=0: time of a microbatch on a device "
                 "(B: input gradient), latency of a hop");
  app.add_option("--memory", typed.memory,
                 "F=1,B=0,W=-1: what each task adds to its device's "
                 "activations");
  app.add_option("--costs", o.costs, "JSON file with lists per device instead");
  app.add_option("--memory-limit", typed.limit,
                 "per device, in the units of --memory");
  app.add_option("--metric", typed.metric,
                 "what searched schedules minimize: makespan, or span (needs a "
                 "step without a barrier)")
      ->check(oneOf({"makespan", "span"}));
  app.add_option("--effort", r.effort,
                 "how long searched schedules are looked for: 10 takes about "
                 "ten times as long as 1 (the default) and finds shorter ones "
                 "where memory is tight, longer ones never");
  app.add_option("--warmup", typed.warmup,
                 "1f1b: forwards before the first backward, per stage");
  app.add_option("--replicas", typed.replicas,
                 "copies of each stage, as 2-1-1; they add up to --stages");
  app.add_option("--slices", r.slices,
                 "seq1f1b: pieces of a sequence (4 when left out)")
      ->check(aCount(1024));
  app.add_option("--group-size", r.groupSize,
                 "interleaved schedules: microbatches in a turn")
      ->check(aCount(1 << 24));
  app.add_flag("--link-occupancy", o.simulate.linkOccupancy,
               "figures with links that carry one transfer at a time");
  app.add_option("--buffers", o.simulate.buffers,
                 "figures with room for so many messages between two devices; "
                 "0: a send waits for its receive; default: no bound")
      ->check(upTo(1 << 20));
  app.add_flag("--fuse-pairs", o.simulate.fusePairs,
               "dualpipe, dualpipe-v, OVERLAP_F_B in a CSV: a forward and a "
               "backward that stand together start and end together");
  app.add_option("--check", o.check, "verify this CSV instead of generating");
  app.add_option("-o,--output", o.csv, "write the order as CSV");
  app.add_flag("--timeline", o.timeline, "draw it in the terminal");
  app.add_option("--html", o.html, "write a page");
  app.add_option("--perfetto", o.perfetto, "write a trace");
  app.add_option("--format", typed.format, "text or json")
      ->check(oneOf({"text", "json"}));
  app.add_flag("--quiet", o.quiet,
               "no figures; --format json and --timeline print");
}

void understandChunks(const std::string &text, ScheduleRequest &request) {
  if (text.empty())
    return;
  if (text == "auto") {
    request.chunks = schedule::kAutoChunks;
    return;
  }
  char *end = nullptr;
  long value = std::strtol(text.c_str(), &end, 10);
  if (*end || value < 1 || value > 1024)
    throw Failure(Exit::Usage,
                  "--chunks: '" + text +
                      "' is neither auto nor a number between 1 and 1024");
  request.chunks = static_cast<int>(value);
}

void understand(Typed typed, ScheduleOptions &o) {
  ScheduleRequest &r = o.request;
  if (o.name.empty() == o.check.empty())
    throw Failure(Exit::Usage, "give the name of a schedule (pipec list "
                               "schedules) or --check FILE, one of the two");
  if (o.check.empty())
    schedule::getSchedule(o.name); // a misspelt name is the first thing to know
  if (o.check.empty() && r.microbatches < 1)
    throw Failure(Exit::Usage, "give --microbatches M, at least 1");
  if (!o.costs.empty() && (!typed.time.empty() || !typed.memory.empty()))
    throw Failure(Exit::Usage,
                  "--costs takes the place of --time and --memory");
  understandChunks(typed.chunks, r);
  readTimes(typed.time, r);
  readMemory(typed.memory, r);
  if (!o.costs.empty())
    readScheduleCosts(o.costs, r);
  if (typed.limit >= 0)
    r.costs.limit.assign(r.devices, typed.limit);
  if (typed.metric == "span")
    r.metric = schedule::Metric::Span;
  r.warmup = readList("--warmup", typed.warmup);
  std::replace(typed.replicas.begin(), typed.replicas.end(), '-', ',');
  r.replicas = readList("--replicas", typed.replicas);
  o.json = typed.format == "json";
}

} // namespace

std::optional<ScheduleOptions> parseScheduleOptions(int argc, char **argv) {
  CLI::App app("Generates, simulates, verifies and draws a pipeline schedule.",
               "pipec schedule");
  ScheduleOptions options;
  options.request.devices = 0;
  options.request.microbatches = 0;
  Typed typed;
  declare(app, options, typed);
  if (parseCommandLine(app, "pipec schedule", argc, argv))
    return std::nullopt;
  if (app.count("--memory-limit") &&
      !(typed.limit >= 0 && typed.limit <= kMostNumber))
    throw Failure(Exit::Usage, "--memory-limit must be between 0 and 1e15");
  understand(typed, options);
  return options;
}

namespace {

class CostsFile {
public:
  CostsFile(const std::string &file, ScheduleRequest &request)
      : file(file), request(request) {
    const std::string text = readFile(file, "the costs");
    root = parseJson(text, file, Exit::BadPlan).root;
    if (!root.is_object())
      fail("", "wanted an object with F, B, W, comm, memory, limit");
  }

  void read() {
    DeviceCosts &c = request.costs;
    onlyKeys(root, "", {"F", "B", "W", "comm", "memory", "limit"});
    list(root, "F", "F", c.forward, true);
    list(root, "B", "B", c.backwardInput, true);
    list(root, "W", "W", c.backwardWeight, true);
    for (std::size_t d = 0; d < c.forward.size(); ++d)
      if (!(c.forward[d] > 0))
        fail("F[" + std::to_string(d) + "]", "must be greater than 0");
    if (root.contains("memory")) {
      const auto &memory = root["memory"];
      if (!memory.is_object())
        fail("memory", "wanted an object with F, B, W");
      onlyKeys(memory, "memory.", {"F", "B", "W"});
      list(memory, "F", "memory.F", c.memoryForward, true);
      list(memory, "B", "memory.B", c.memoryInput, false);
      list(memory, "W", "memory.W", c.memoryWeight, false);
    }
    list(root, "limit", "limit", c.limit, true);
    comm();
  }

private:
  [[noreturn]] void fail(const std::string &key, const std::string &why) const {
    throw Failure(Exit::BadPlan,
                  file + ": " + (key.empty() ? "" : key + ": ") + why);
  }

  void onlyKeys(const nlohmann::json &object, const std::string &prefix,
                const std::vector<std::string> &known) const {
    for (const auto &[key, value] : object.items())
      if (std::find(known.begin(), known.end(), key) == known.end())
        fail(prefix + key, "no such key");
  }

  double number(const nlohmann::json &value, const std::string &key,
                bool positive) const {
    if (!value.is_number())
      fail(key, "wanted a number");
    double x = value.get<double>();
    if (!(std::abs(x) <= kMostNumber) || (positive && x < 0))
      fail(key,
           positive ? "must be between 0 and 1e15" : "must be within ±1e15");
    return x;
  }

  /// One number for all devices, or a list with one for each.
  void list(const nlohmann::json &object, const char *name,
            const std::string &key, std::vector<double> &target,
            bool positive) const {
    if (!object.contains(name))
      return;
    const auto &value = object[name];
    if (!value.is_array()) {
      target.assign(request.devices, number(value, key, positive));
      return;
    }
    checkSize(value, key, request.devices, "one per device");
    target.clear();
    for (std::size_t i = 0; i < value.size(); ++i)
      target.push_back(
          number(value[i], key + "[" + std::to_string(i) + "]", positive));
  }

  void checkSize(const nlohmann::json &value, const std::string &key,
                 int wanted, const char *what) const {
    if (static_cast<int>(value.size()) != wanted)
      fail(key, std::to_string(value.size()) + " entries, wanted " +
                    std::to_string(wanted) + ", " + what);
  }

  void comm() {
    if (!root.contains("comm"))
      return;
    const auto &value = root["comm"];
    DeviceCosts &c = request.costs;
    if (value.is_number()) {
      c.comm = {number(value, "comm", true)};
      return;
    }
    if (!value.is_array())
      fail("comm", "wanted a number, a list with one per link between "
                   "neighbours, or a matrix of devices");
    bool matrix = !value.empty() && value[0].is_array();
    checkSize(value, "comm", matrix ? request.devices : request.devices - 1,
              matrix ? "one row per device" : "one per link");
    c.comm.clear();
    for (std::size_t i = 0; i < value.size(); ++i) {
      std::string key = "comm[" + std::to_string(i) + "]";
      if (!matrix) {
        c.comm.push_back(number(value[i], key, true));
        continue;
      }
      if (!value[i].is_array())
        fail(key, "wanted a row of the matrix");
      checkSize(value[i], key, request.devices, "one per device");
      c.link.emplace_back();
      for (const auto &x : value[i])
        c.link.back().push_back(number(x, key, true));
    }
  }

  const std::string &file;
  ScheduleRequest &request;
  nlohmann::json root;
};

} // namespace

void readScheduleCosts(const std::string &file, ScheduleRequest &request) {
  CostsFile(file, request).read();
}

} // namespace pipec
