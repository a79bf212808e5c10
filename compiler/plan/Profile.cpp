#include "compiler/plan/Profile.h"

#include "support/Failure.h"
#include "support/ReadFile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace pipec::plan {

namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void bad(const std::string &origin, const std::string &message) {
  throw Failure(Exit::BadPlan, "profile " + origin + ": " + message);
}

double secondsOf(const Json &entry, const char *key, const std::string &origin,
                 const std::string &where) {
  if (!entry.contains(key) || !entry[key].is_number())
    bad(origin, where + " has no number \"" + key + "\"");
  double seconds = entry[key].get<double>();
  if (!std::isfinite(seconds) || seconds < 0)
    bad(origin, where + ": \"" + key + "\" must be a number of at least 0");
  return seconds;
}

MeasuredTimes timesOf(const Json &entry, const std::string &origin,
                      const std::string &where) {
  auto take = [&](const char *key) {
    return secondsOf(entry, key, origin, where);
  };
  return {take("forward_s"), take("backward_input_s"),
          take("backward_weight_s")};
}

size_t indexOf(const Json &entry, const char *key, const std::string &origin,
               const std::string &where) {
  if (!entry.contains(key) || !entry[key].is_number_unsigned())
    bad(origin, where + " has no whole number \"" + key + "\"");
  return entry[key].get<size_t>();
}

const Json &listOf(const Json &root, const char *key,
                   const std::string &origin) {
  static const Json none = Json::array();
  if (!root.contains(key))
    return none;
  if (!root[key].is_array())
    bad(origin, std::string("\"") + key + "\" is not a list");
  return root[key];
}

void put(Json &entry, const MeasuredTimes &times) {
  entry["forward_s"] = times.forwardSeconds;
  entry["backward_input_s"] = times.backwardInputSeconds;
  entry["backward_weight_s"] = times.backwardWeightSeconds;
}

/// One part of a stage's time over its nodes, in the model's proportions;
/// evenly where the model sees no work at all.
void spread(CostGraph &graph, const MeasuredStage &stage,
            double CostNode::*part, double seconds) {
  double modelled = 0;
  for (size_t i = stage.firstNode; i <= stage.lastNode; ++i)
    modelled += graph.nodes[i].*part;
  double count = static_cast<double>(stage.lastNode - stage.firstNode + 1);
  for (size_t i = stage.firstNode; i <= stage.lastNode; ++i)
    graph.nodes[i].*part = modelled > 0
                               ? seconds * (graph.nodes[i].*part / modelled)
                               : seconds / count;
}

/// Seconds of the update per byte of trained weights; 0 when not measured.
double updateRate(const Profile &profile, const CostGraph &graph) {
  double seconds = 0, bytes = 0;
  for (const MeasuredStage &stage : profile.stages) {
    if (stage.updateSeconds <= 0)
      continue;
    seconds += stage.updateSeconds;
    for (size_t i = stage.firstNode; i <= stage.lastNode; ++i)
      bytes += static_cast<double>(graph.nodes[i].parameterBytes);
    for (const CostWeight &weight : graph.weights)
      if (weight.trainable &&
          std::any_of(weight.users.begin(), weight.users.end(), [&](size_t u) {
            return u >= stage.firstNode && u <= stage.lastNode;
          }))
        bytes += static_cast<double>(weight.bytes);
  }
  return bytes > 0 ? seconds / bytes : 0;
}

} // namespace

Profile parseProfile(const std::string &text, const std::string &origin) {
  Json root;
  try {
    root = Json::parse(text);
  } catch (const Json::parse_error &e) {
    bad(origin, std::string("not JSON: ") + e.what());
  }
  if (!root.is_object() || !root.contains("version") || root["version"] != 1)
    bad(origin,
        "needs \"version\": 1; write it anew with pipec-run --profile-out");
  Profile profile;
  if (root.contains("microbatch_size"))
    profile.microbatchSize =
        static_cast<int>(indexOf(root, "microbatch_size", origin, "the file"));
  for (const Json &entry : listOf(root, "nodes", origin)) {
    std::string where = "node " + std::to_string(profile.nodes.size());
    if (!entry.is_object() || !entry.contains("id") || !entry["id"].is_string())
      bad(origin, where + " has no \"id\"");
    profile.nodes.push_back(
        {entry["id"].get<std::string>(), timesOf(entry, origin, where)});
  }
  for (const Json &entry : listOf(root, "stages", origin)) {
    std::string where = "stage " + std::to_string(profile.stages.size());
    if (!entry.is_object())
      bad(origin, where + " is not an object");
    profile.stages.push_back({indexOf(entry, "first_node", origin, where),
                              indexOf(entry, "last_node", origin, where),
                              timesOf(entry, origin, where),
                              entry.contains("update_s")
                                  ? secondsOf(entry, "update_s", origin, where)
                                  : 0});
  }
  return profile;
}

Profile readProfile(const std::string &path) {
  return parseProfile(readFile(path, "the profile"), path);
}

std::string writeProfile(const Profile &profile) {
  Json root;
  root["version"] = 1;
  if (profile.microbatchSize > 0)
    root["microbatch_size"] = profile.microbatchSize;
  root["nodes"] = Json::array();
  for (const MeasuredNode &node : profile.nodes) {
    Json entry;
    entry["id"] = node.id;
    put(entry, node.times);
    root["nodes"].push_back(std::move(entry));
  }
  root["stages"] = Json::array();
  for (const MeasuredStage &stage : profile.stages) {
    Json entry;
    entry["first_node"] = stage.firstNode;
    entry["last_node"] = stage.lastNode;
    put(entry, stage.times);
    if (stage.updateSeconds > 0)
      entry["update_s"] = stage.updateSeconds;
    root["stages"].push_back(std::move(entry));
  }
  return root.dump(1) + "\n";
}

void applyProfile(const Profile &profile, int microbatchSize,
                  CostGraph &graph) {
  auto refuse = [](const std::string &message) {
    throw Failure(Exit::BadPlan,
                  "the profile does not fit the model: " + message);
  };
  if (profile.microbatchSize > 0 && microbatchSize > 0 &&
      profile.microbatchSize != microbatchSize)
    refuse("it was measured with microbatches of " +
           std::to_string(profile.microbatchSize) + ", not " +
           std::to_string(microbatchSize));
  std::vector<char> covered(graph.nodes.size(), 0);
  for (const MeasuredStage &stage : profile.stages) {
    if (stage.firstNode > stage.lastNode ||
        stage.lastNode >= graph.nodes.size())
      refuse("nodes " + std::to_string(stage.firstNode) + " to " +
             std::to_string(stage.lastNode) +
             " are not all in the model, which has " +
             std::to_string(graph.nodes.size()));
    for (size_t i = stage.firstNode; i <= stage.lastNode; ++i)
      if (covered[i]++)
        refuse("node " + std::to_string(i) + " is in two measured stages");
    spread(graph, stage, &CostNode::forwardSeconds, stage.times.forwardSeconds);
    spread(graph, stage, &CostNode::backwardInputSeconds,
           stage.times.backwardInputSeconds);
    spread(graph, stage, &CostNode::backwardWeightSeconds,
           stage.times.backwardWeightSeconds);
  }
  graph.updateSecondsPerByte = updateRate(profile, graph);
  std::unordered_map<std::string, size_t> byId;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    byId.emplace(graph.nodes[i].id, i);
  for (const MeasuredNode &node : profile.nodes) {
    auto it = byId.find(node.id);
    if (it == byId.end())
      refuse("it has no node '" + node.id + "'");
    CostNode &into = graph.nodes[it->second];
    into.forwardSeconds = node.times.forwardSeconds;
    into.backwardInputSeconds = node.times.backwardInputSeconds;
    into.backwardWeightSeconds = node.times.backwardWeightSeconds;
  }
}

} // namespace pipec::plan
