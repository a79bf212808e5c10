//===- StagesByHand.cpp - stages and replicas that the options name -------===//
#include "compiler/driver/StagesByHand.h"

#include "compiler/schedule/Generator.h"
#include "support/Failure.h"
#include "support/ParseJson.h"
#include "support/ReadFile.h"
#include "support/UnknownName.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <sstream>
#include <vector>

namespace pipec {

/// Of a plan with pieces of sequences the stages of the first piece, which
/// come first.
static size_t stagesToRead(const nlohmann::json &json) {
  const size_t stages = json.at("stages").size();
  const nlohmann::json pieces = json.value(
      nlohmann::json::json_pointer("/strategy/slices"), nlohmann::json(1u));
  const bool divides = pieces.is_number_unsigned() && pieces > 0 &&
                       stages % pieces.get<size_t>() == 0;
  return divides ? stages / pieces.get<size_t>() : stages;
}

/// How often the file's plan has each stage: twice where its schedule goes both
/// ways. A file that names none is for what is asked for.
static size_t copiesIn(const nlohmann::json &json, int asked) {
  const schedule::ScheduleRow *row = schedule::findSchedule(json.value(
      nlohmann::json::json_pointer("/strategy/schedule"), std::string()));
  if (!row)
    return static_cast<size_t>(std::max(1, asked));
  return row->layout == schedule::Layout::Bidirectional ? 2 : 1;
}

/// A plan says what its stages begin with: something else here where it is of
/// another model.
static void noteStart(const std::string &path, const plan::CostGraph &graph,
                      size_t node, const nlohmann::json &stage,
                      std::vector<std::string> &notes) {
  const auto name = stage.find("first_name");
  if (!notes.empty() || node >= graph.nodes.size() || name == stage.end() ||
      !name->is_string() || *name == graph.nodes[node].name)
    return;
  notes.push_back("the stage file " + path + " is of another model: node " +
                  std::to_string(node) + ", where a stage begins, is '" +
                  graph.nodes[node].name + "' here and '" +
                  name->get<std::string>() + "' there");
}

/// Of a stage that is written by hand: a member that is mistyped. Those of a
/// plan's stages are many.
static std::optional<std::string> unknownMember(const nlohmann::json &stage) {
  static const std::vector<std::string> known = {
      "first_node", "replicas", "last_node", "last_name",
      "recompute",  "ranks",    "first_name"};
  for (const auto &[name, value] : stage.items())
    if (const std::string near = didYouMean(name, known);
        !near.empty() && std::ranges::find(known, name) == known.end())
      return "a stage has no member '" + name + "'" + near +
             "; it has first_node and replicas";
  return std::nullopt;
}

/// A plan.json, or the part of it that says where stages begin.
static void readStageFile(const std::string &path, plan::PlanRequest &request,
                          std::vector<std::string> &notes) {
  const std::string text = readFile(path, "the stage file");
  const auto bad = [&](const std::string &why) {
    return Failure(Exit::BadPlan, "stage file " + path + ": " + why);
  };
  const nlohmann::json json =
      parseJson(text, "stage file " + path, Exit::BadPlan).root;
  try {
    request.cuts.clear();
    request.replicas.clear();
    size_t left = stagesToRead(json);
    const size_t copies = copiesIn(json, request.strategy.copies);
    const bool isByHand = !json.contains("version"); // as a plan does
    for (const auto &stage : json.at("stages")) {
      if (left-- == 0)
        break;
      if (const auto why = isByHand && stage.is_object() ? unknownMember(stage)
                                                         : std::nullopt)
        throw bad(*why);
      const nlohmann::json &first = stage.at("first_node");
      if (!first.is_number_unsigned())
        throw bad("first_node must be a whole number of 0 or more, not " +
                  first.dump());
      request.cuts.push_back(first.get<size_t>());
      noteStart(path, request.graph, request.cuts.back(), stage, notes);
      if (stage.contains("ranks") && !stage["ranks"].is_array())
        throw bad("ranks must be a list, not " + stage["ranks"].dump());
      const nlohmann::json replicas =
          stage.contains("ranks")
              ? nlohmann::json((stage["ranks"].size() + copies - 1) / copies)
              : stage.value("replicas", nlohmann::json(1u));
      if (!replicas.is_number_unsigned() || replicas.get<uint64_t>() < 1 ||
          replicas.get<uint64_t>() > 100000)
        throw bad("a stage has a whole number of replicas from 1 to 100000");
      request.replicas.push_back(replicas.get<int>());
    }
  } catch (const nlohmann::json::exception &) {
    throw bad(
        "it is not {\"stages\": [{\"first_node\": 0}, …]}, as a plan.json "
        "is: give one of these, or write one");
  }
  size_t nodes = request.graph.nodes.size();
  bool ok = !request.cuts.empty() && request.cuts[0] == 0 &&
            std::adjacent_find(request.cuts.begin(), request.cuts.end(),
                               std::greater_equal<>()) == request.cuts.end() &&
            request.cuts.back() < nodes;
  if (!ok)
    throw bad("first_node must start at 0, ascend and stay below " +
              std::to_string(nodes));
}

static std::vector<int> parseReplicas(const std::string &text) {
  std::vector<int> replicas;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, '-');) {
    char *end = nullptr;
    long n = std::strtol(part.c_str(), &end, 10);
    if (part.empty() || *end || n < 1 || n > 100000)
      throw Failure(Exit::Usage,
                    "--replicas takes a list as 3-1, not '" + text + "'");
    replicas.push_back(n);
  }
  return replicas;
}

void readStages(const CompileOptions &o, plan::PlanRequest &request,
                std::vector<std::string> &notes) {
  notes.clear();
  if (!o.stageFile.empty())
    readStageFile(o.stageFile, request, notes);
  if (!o.replicas.empty()) {
    request.replicas = parseReplicas(o.replicas);
    if (const size_t given = request.replicas.size(),
        cuts = request.cuts.size();
        cuts && given != cuts)
      throw Failure(Exit::Usage, "--replicas " + o.replicas + " is for " +
                                     std::to_string(given) +
                                     " stages, the stage file has " +
                                     std::to_string(cuts) +
                                     "; give a number for each, or leave "
                                     "--replicas out");
    request.stages = request.replicas.size();
  }
  if (o.stages != "auto") {
    char *end = nullptr;
    long n = std::strtol(o.stages.c_str(), &end, 10);
    if (*end || n < 1 || n > static_cast<long>(request.graph.nodes.size()))
      throw Failure(Exit::Usage,
                    "--stages takes auto or a number from 1 to " +
                        std::to_string(request.graph.nodes.size()) +
                        " (the model's nodes), not '" + o.stages + "'");
    if (const auto cuts = static_cast<long>(request.cuts.size());
        cuts && cuts != n)
      throw Failure(Exit::Usage,
                    "--stages " + o.stages + ": the stage file has " +
                        std::to_string(cuts) + "; leave --stages out");
    if (request.stages && *request.stages != n)
      throw Failure(Exit::Usage, "--stages " + o.stages + " and --replicas " +
                                     o.replicas +
                                     " name different numbers of stages");
    request.stages = n;
  }
}

} // namespace pipec
