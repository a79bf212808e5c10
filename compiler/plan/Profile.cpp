#include "compiler/plan/Profile.h"

#include "support/CoreUse.h"
#include "support/Failure.h"
#include "support/ParseJson.h"
#include "support/ReadFile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace pipec::plan {

namespace {

using Json = nlohmann::ordered_json;

const std::string kWritesOne =
    "; pipec-run PLAN … --profile-out FILE writes one";

[[noreturn]] void bad(const std::string &origin, const std::string &message) {
  const bool hasRemedy = message.find(';') != std::string::npos;
  throw Failure(Exit::BadPlan, "profile " + origin + ": " + message +
                                   (hasRemedy ? "" : kWritesOne));
}

ParsedJson parsedFile(const std::string &text, const std::string &origin) {
  try {
    return parseJson(text, "profile " + origin, Exit::BadPlan);
  } catch (const Failure &failure) {
    throw Failure(failure.code, failure.what() + kWritesOne);
  }
}

double numberOf(const Json &entry, const char *key, const std::string &origin,
                const std::string &where) {
  if (!entry.contains(key) || !entry[key].is_number())
    bad(origin, where + " has no number \"" + key + "\"");
  const double number = entry[key].get<double>();
  if (!std::isfinite(number) || number < 0)
    bad(origin, where + ": \"" + key + "\" must be a number of at least 0");
  constexpr double kMost = 1e9; // seconds
  if (number > kMost)
    bad(origin, where + ": \"" + key + "\" must be at most 1e9");
  return number;
}

MeasuredTimes timesOf(const Json &entry, const std::string &origin,
                      const std::string &where) {
  auto take = [&](const char *key) {
    return numberOf(entry, key, origin, where);
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

std::string textOf(const Json &root, const char *key,
                   const std::string &origin) {
  if (!root.contains(key))
    return "";
  if (!root[key].is_string())
    bad(origin, std::string("\"") + key + "\" is not a text");
  return root[key].get<std::string>();
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

constexpr size_t kMostMicrobatches = 65536, kMostReplicas = 65536;

MeasuredStep stepOf(const Json &entry, size_t stages,
                    const std::string &origin) {
  const std::string where = "\"step\"";
  if (!entry.is_object())
    bad(origin, where + " is not an object");
  MeasuredStep step;
  step.strategy = textOf(entry, "strategy", origin);
  if (step.strategy.empty())
    bad(origin, where + " has no \"strategy\"");
  const size_t microbatches = indexOf(entry, "microbatches", origin, where);
  if (microbatches < 1 || microbatches > kMostMicrobatches)
    bad(origin, where + ": \"microbatches\" must be from 1 to " +
                    std::to_string(kMostMicrobatches));
  step.microbatches = static_cast<int>(microbatches);
  step.seconds = numberOf(entry, "seconds", origin, where);
  for (const Json &count : listOf(entry, "replicas", origin)) {
    if (!count.is_number_unsigned() || count == 0 ||
        count.get<uint64_t>() > kMostReplicas)
      bad(origin, where + ": \"replicas\" are whole numbers from 1 to " +
                      std::to_string(kMostReplicas));
    step.replicas.push_back(count.get<int>());
  }
  if (step.replicas.size() != stages)
    bad(origin, where + ": \"replicas\" has " +
                    std::to_string(step.replicas.size()) + " numbers for " +
                    std::to_string(stages) + " stages");
  if (!entry.contains("recompute") || !entry["recompute"].is_array())
    bad(origin, where + ": \"recompute\" is a list with true or false for each "
                        "stage; pipec-run PLAN … --profile-out FILE writes it");
  for (const Json &again : entry["recompute"]) {
    if (!again.is_boolean())
      bad(origin, where + ": \"recompute\" is true or false of each stage");
    step.recompute.push_back(again.get<bool>());
  }
  if (step.recompute.size() != stages)
    bad(origin, where + ": \"recompute\" has " +
                    std::to_string(step.recompute.size()) + " values for " +
                    std::to_string(stages) + " stages");
  return step;
}

/// What nobody reads is named.
void refuseUnknownMembers(const ParsedJson &file) {
  const auto refuse = [&](const Json &object,
                          const std::vector<std::string> &names,
                          const std::string &what) {
    file.refuseUnknown(object, names, what, Exit::BadPlan);
  };
  refuse(file.root,
         {"version", "model_sha256", "device", "threads", "precision",
          "microbatch_size", "others_share", "stages", "nodes", "step"},
         "the file");
  if (file.root.contains("step"))
    refuse(file.root["step"],
           {"strategy", "microbatches", "replicas", "recompute", "seconds"},
           "\"step\"");
  for (const auto &[list, names] :
       {std::pair<const char *, std::vector<std::string>>{
            "stages",
            {"first_node", "last_node", "forward_s", "backward_input_s",
             "backward_weight_s", "update_s"}},
        {"nodes",
         {"id", "forward_s", "backward_input_s", "backward_weight_s"}}})
    if (file.root.contains(list) && file.root[list].is_array())
      for (const Json &entry : file.root[list])
        refuse(entry, names, std::string("an entry of \"") + list + "\"");
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

[[noreturn]] void refuse(const Profile &profile, const std::string &message) {
  throw Failure(
      Exit::BadPlan,
      (profile.file.empty() ? "the profile" : "profile " + profile.file) +
          " does not fit the model: " + message +
          "; leave out --profile, or measure this model as it is "
          "planned now: pipec-run PLAN … --profile-out FILE");
}

/// What makes the times another program's is refused; other threads, which
/// make them another number, are remarked upon.
std::vector<std::string> compare(const Profile &profile,
                                 const ProfileOrigin &asked) {
  const ProfileOrigin &from = profile.origin;
  auto differ = [](auto &a, auto &b) { return a > 0 && b > 0 && a != b; };
  if (!from.modelSha256.empty() && !asked.modelSha256.empty() &&
      from.modelSha256 != asked.modelSha256)
    refuse(profile,
           "it was measured on another file, of SHA-256 " + from.modelSha256);
  if (!from.device.empty() && !asked.device.empty() &&
      from.device != asked.device)
    refuse(profile, "it was measured on devices of kind " + from.device +
                        ", not " + asked.device);
  if (!from.precision.empty() && !asked.precision.empty() &&
      from.precision != asked.precision)
    refuse(profile, "it was measured with --precision " + from.precision +
                        ", not " + asked.precision);
  if (differ(from.microbatchSize, asked.microbatchSize))
    refuse(profile, "it was measured with microbatches of " +
                        std::to_string(from.microbatchSize) + ", not " +
                        std::to_string(asked.microbatchSize));
  // Those of a rank on a GPU only tell it what to do.
  if (asked.device == "gpu" || !differ(from.threads, asked.threads))
    return {};
  return {"the profile was measured on ranks of " +
          std::to_string(from.threads) +
          (from.threads == 1 ? " thread" : " threads") +
          ", those of this plan have " + std::to_string(asked.threads) +
          "; its times are taken as they are"};
}

/// Their share of the cores is in the measured step, not in the tasks: it is
/// planned with as if ranks had waited for each other.
std::string ofOthers(double share) {
  char percent[32];
  std::snprintf(percent, sizeof percent, "%.0f %%", 100 * share);
  return std::string("other programs had ") + percent +
         " of the machine's cores while the profile was measured: its step, "
         "and the predicted one, are longer than its tasks explain; measure "
         "again when the machine has nothing else to do";
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
  const ParsedJson parsed = parsedFile(text, origin);
  const Json &root = parsed.root;
  if (!root.is_object() || !root.contains("version") || root["version"] != 1)
    bad(origin,
        "needs \"version\": 1; write it anew with pipec-run --profile-out");
  refuseUnknownMembers(parsed);
  Profile profile;
  profile.file = origin;
  auto whole = [&](const char *key) {
    return root.contains(key)
               ? static_cast<int>(indexOf(root, key, origin, "the file"))
               : 0;
  };
  profile.origin = {whole("microbatch_size"), whole("threads"),
                    textOf(root, "device", origin),
                    textOf(root, "model_sha256", origin),
                    textOf(root, "precision", origin)};
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
                                  ? numberOf(entry, "update_s", origin, where)
                                  : 0});
  }
  if (root.contains("step"))
    profile.step = stepOf(root["step"], profile.stages.size(), origin);
  if (root.contains("others_share"))
    profile.othersShare = numberOf(root, "others_share", origin, "the file");
  if (profile.othersShare > 1)
    bad(origin, "\"others_share\" is a share, from 0 to 1");
  return profile;
}

Profile readProfile(const std::string &path) {
  return parseProfile(readFile(path, "the profile"), path);
}

std::string writeProfile(const Profile &profile) {
  Json root;
  root["version"] = 1;
  const ProfileOrigin &from = profile.origin;
  if (!from.modelSha256.empty())
    root["model_sha256"] = from.modelSha256;
  if (!from.device.empty())
    root["device"] = from.device;
  if (from.threads > 0)
    root["threads"] = from.threads;
  if (!from.precision.empty())
    root["precision"] = from.precision;
  if (from.microbatchSize > 0)
    root["microbatch_size"] = from.microbatchSize;
  if (profile.othersShare > 0)
    root["others_share"] = profile.othersShare;
  for (const MeasuredStage &stage : profile.stages) {
    Json entry;
    entry["first_node"] = stage.firstNode;
    entry["last_node"] = stage.lastNode;
    put(entry, stage.times);
    if (stage.updateSeconds > 0)
      entry["update_s"] = stage.updateSeconds;
    root["stages"].push_back(std::move(entry));
  }
  if (profile.step)
    root["step"] = {{"strategy", profile.step->strategy},
                    {"microbatches", profile.step->microbatches},
                    {"replicas", profile.step->replicas},
                    {"recompute", profile.step->recompute},
                    {"seconds", profile.step->seconds}};
  for (const MeasuredNode &node : profile.nodes) {
    Json entry;
    entry["id"] = node.id;
    put(entry, node.times);
    root["nodes"].push_back(std::move(entry));
  }
  return root.dump(1) + "\n";
}

std::vector<std::string> applyProfile(const Profile &profile,
                                      const ProfileOrigin &asked,
                                      CostGraph &graph) {
  std::vector<std::string> remarks = compare(profile, asked);
  if (profile.othersShare >= kNoticedShare)
    remarks.push_back(ofOthers(profile.othersShare));
  std::vector<char> covered(graph.nodes.size(), 0);
  for (const MeasuredStage &stage : profile.stages) {
    if (stage.firstNode > stage.lastNode ||
        stage.lastNode >= graph.nodes.size())
      refuse(profile, "nodes " + std::to_string(stage.firstNode) + " to " +
                          std::to_string(stage.lastNode) +
                          " are not all in the model, which has " +
                          std::to_string(graph.nodes.size()));
    for (size_t i = stage.firstNode; i <= stage.lastNode; ++i)
      if (covered[i]++)
        refuse(profile,
               "node " + std::to_string(i) + " is in two measured stages");
    spread(graph, stage, &CostNode::forwardSeconds, stage.times.forwardSeconds);
    spread(graph, stage, &CostNode::backwardInputSeconds,
           stage.times.backwardInputSeconds);
    spread(graph, stage, &CostNode::backwardWeightSeconds,
           stage.times.backwardWeightSeconds);
  }
  graph.updateSecondsPerByte = updateRate(profile, graph);
  graph.forwardTaskSeconds = graph.backwardTaskSeconds = 0; // measured with it
  std::unordered_map<std::string, size_t> byId;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    byId.emplace(graph.nodes[i].id, i);
  for (const MeasuredNode &node : profile.nodes) {
    auto it = byId.find(node.id);
    if (it == byId.end())
      refuse(profile, "it has no node '" + node.id + "'");
    CostNode &into = graph.nodes[it->second];
    into.forwardSeconds = node.times.forwardSeconds;
    into.backwardInputSeconds = node.times.backwardInputSeconds;
    into.backwardWeightSeconds = node.times.backwardWeightSeconds;
    covered[it->second] = 1;
  }
  auto missing = std::find(covered.begin(), covered.end(), 0);
  if (missing != covered.end()) {
    const CostNode &node = graph.nodes[missing - covered.begin()];
    refuse(profile, "it has no times for node '" + node.id + "'" +
                        (node.name.empty() ? "" : " (" + node.name + ")") +
                        "; measure all stages, in one run with --profile-out");
  }
  return remarks;
}

} // namespace pipec::plan
