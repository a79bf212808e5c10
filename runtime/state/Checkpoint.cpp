//===- Checkpoint.cpp - saving and resuming -------------------------------===//
#include "runtime/state/Checkpoint.h"
#include "runtime/program/Sequence.h"
#include "runtime/program/Sha256.h"
#include "runtime/state/Tensors.h"
#include "support/OutputFile.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <sys/stat.h>

namespace pipec {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr int kVersion = 1;

constexpr const char *kStep = "step-", *kWriting = ".writing-";
constexpr int kDigits = 8; ///< of a step, at least

std::string padded(int64_t number, int width) {
  std::string digits = std::to_string(number);
  digits.insert(0,
                static_cast<size_t>(std::max<int64_t>(
                    0, width - static_cast<int64_t>(digits.size()))),
                '0');
  return digits;
}

std::string shardName(int rank) {
  return "rank-" + padded(rank, 4) + ".safetensors";
}

[[noreturn]] void bad(const std::string &path, const std::string &what) {
  throw Failure(Exit::BadPlan, path + ": " + what);
}

/// Runs a std::filesystem function that reports through an error_code.
template <class Call> void orCannotWrite(const std::string &path, Call call) {
  std::error_code error;
  call(error);
  if (error)
    cannotWrite(path, error.value());
}

/// What a plan must have in common with a checkpoint. A stream's versions
/// belong to its stages, so there everything must be the same.
Json fingerprint(const plan::Plan &plan, const std::string &planFolder) {
  const bool stream = plan.strategy.update == "round";
  Json json = {{"update", plan.strategy.update},
               {"versions", plan.strategy.versions},
               {"model_sha256", plan.files.empty() ? "" : plan.files[0].sha256},
               {"microbatches", plan.training.microbatches},
               {"microbatch_size", plan.training.microbatch_size},
               {"optimizer", plan.training.optimizer.kind}};
  if (stream)
    json["plan_sha256"] = sha256OfFile(planFolder + "/plan.json");
  return json;
}

/// What may change when a run goes on, and is told then.
std::map<std::string, double> settingsOf(const plan::Plan &plan) {
  std::map<std::string, double> settings = plan.training.optimizer.options;
  settings["clip-norm"] = plan.training.clip_norm;
  return settings;
}

/// The name of the model's file.
std::string modelName(const plan::Plan &plan) {
  return fs::path(plan.model.path).filename().string();
}

/// Whether a run has named it so: step-00000020. What else is in the folder is
/// the user's.
bool isNumbered(const std::string &name, const std::string &front) {
  return name.size() >= front.size() + kDigits && name.rfind(front, 0) == 0 &&
         name.find_first_not_of("0123456789", front.size()) == name.npos;
}

/// Removes what earlier runs left half-written, and whole checkpoints other
/// than `keep`.
void tidy(const std::string &folder, const std::string &keep) {
  std::error_code ignored;
  std::vector<fs::path> old;
  for (const auto &entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (isNumbered(name, kWriting) ||
        (!keep.empty() && isNumbered(name, kStep) && name != keep))
      old.push_back(entry.path());
  }
  for (const fs::path &path : old)
    fs::remove_all(path, ignored);
}

} // namespace

void saveCheckpoint(RankState &state, Council &council,
                    const std::string &folder, int64_t steps,
                    const RunIdentity &identity) {
  const std::string name = kStep + padded(steps, kDigits);
  const std::string temporary =
      folder + "/" + kWriting + padded(steps, kDigits);
  const bool leads = state.rank == 0;
  Json shards = Json::array();
  std::string mine;
  try {
    council.agree("opening the checkpoint", [&] {
      if (!leads)
        return;
      orCannotWrite(
          folder, [&](auto &error) { fs::create_directories(folder, error); });
      tidy(folder, "");
      orCannotWrite(
          folder, [&](auto &error) { fs::create_directory(temporary, error); });
    });
    council.agree("writing a shard of the checkpoint", [&] {
      if (!fs::is_directory(temporary))
        throw Failure(Exit::CannotWrite,
                      folder + ": not visible on this host; --checkpoint "
                               "needs a folder that all hosts share");
      std::vector<Tensor> tensors = trainedTensors(state, steps);
      std::erase_if(tensors, [](const Tensor &t) { return !t.owned; });
      const ShardSeal seal = writeSafetensors(
          temporary + "/" + shardName(state.rank), folder, *state.device,
          tensors, {{"step", std::to_string(steps)}});
      mine = Json{{"file", shardName(state.rank)},
                  {"bytes", seal.bytes},
                  {"sha256", seal.sha256}}
                 .dump();
    });
    council.gather("waiting for the shards", mine,
                   [&](int, const std::string &text) {
                     shards.push_back(Json::parse(text));
                   });
    council.agree("committing the checkpoint", [&] {
      if (!leads)
        return;
      Json record = {{"version", kVersion}, {"step", steps}};
      record.update(fingerprint(state.plan, state.folder));
      record["model"] = modelName(state.plan);
      record["strategy"] = state.plan.strategy.name;
      record["precision"] = state.plan.training.precision;
      record["settings"] = settingsOf(state.plan);
      record["seed"] = identity.seed;
      record["shuffle"] =
          identity.shuffle ? Json(*identity.shuffle) : Json(nullptr);
      record["data"] = identity.data;
      record["lr_schedule"] = identity.rate;
      record["shards"] = shards;
      OutputFile file(temporary + "/commit.json", folder);
      file.write(record.dump(1) + "\n");
      file.finish();
      syncFolder(temporary);
      const std::string final = folder + "/" + name;
      // Only a run that was resumed and repeats a step finds one.
      std::error_code ignored;
      fs::remove_all(final, ignored);
      orCannotWrite(final,
                    [&](auto &error) { fs::rename(temporary, final, error); });
      syncFolder(folder);
      tidy(folder, name);
    });
  } catch (const Agreed &) {
    if (leads)
      tidy(folder, "");
    throw;
  }
}

//===----------------------------------------------------------------------===//
// Resuming
//===----------------------------------------------------------------------===//

namespace {

/// The name of the newest of several checkpoints; empty when there is none.
std::string newestOf(const std::string &folder, std::error_code &error) {
  std::string newest;
  for (const auto &entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (isNumbered(name, kStep))
      newest = std::max(newest, name);
  }
  return newest;
}

/// The folder of the newest checkpoint.
std::string newestIn(const std::string &folder) {
  std::error_code error;
  if (fs::exists(folder + "/commit.json", error))
    return folder;
  const std::string newest = newestOf(folder, error);
  if (error || newest.empty())
    throw Failure(Exit::NoInput,
                  "--resume " + folder + ": " +
                      (error ? error.message()
                             : std::string("there is no checkpoint in it")) +
                      "; give the folder of a run's --checkpoint, or leave "
                      "--resume out to begin anew");
  return folder + "/" + newest;
}

Json readRecord(const std::string &path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf()))
    bad(path, "is missing; the checkpoint is not whole");
  Json json = Json::parse(text.str(), nullptr, false);
  if (!json.is_object())
    bad(path, "is damaged: it is not JSON; resume from another checkpoint");
  return json;
}

/// "the model 'gpt.onnx' (sha256 1a2b3c4d)", as far as it is known.
std::string modelText(const std::string &name, const std::string &sha256) {
  return "the model" + (name.empty() ? "" : " '" + name + "'") + " (sha256 " +
         sha256.substr(0, 8) + ")";
}

/// A value of a record or a fingerprint: text without quotes.
std::string plain(const Json &value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// A member that is a text, or `other`.
std::string textOr(const Json &record, const char *key,
                   const std::string &other) {
  const auto found = record.find(key);
  return found != record.end() && found->is_string() ? found->get<std::string>()
                                                     : other;
}

/// "its microbatches is 4, the plan's is 6".
std::string difference(const std::string &key, const Json &record,
                       const Json &found, const Json &expected,
                       const plan::Plan &plan) {
  if (key == "model_sha256")
    return "it is of " + modelText(textOr(record, "model", ""), plain(found)) +
           ", the plan of " + modelText(modelName(plan), plain(expected));
  if (key == "update" || key == "versions")
    return "its strategy is " + textOr(record, "strategy", plain(found)) +
           ", the plan's is " + plan.strategy.name;
  return "its " + key + " is " + plain(found) + ", the plan's is " +
         plain(expected);
}

void checkFingerprint(const std::string &path, const Json &record,
                      const plan::Plan &plan, const std::string &planFolder) {
  const Json expected = fingerprint(plan, planFolder);
  std::vector<std::string> differing;
  for (auto item = expected.begin(); item != expected.end(); ++item) {
    const Json found = record.value(item.key(), Json());
    if (found == *item || item.key() == "plan_sha256")
      continue;
    const std::string text = difference(item.key(), record, found, *item, plan);
    if (differing.empty() || differing.back() != text)
      differing.push_back(text);
  }
  std::string all;
  for (const std::string &one : differing)
    all += (all.empty() ? "" : ", and ") + one;
  if (!differing.empty())
    bad(path, "was written by another plan: " + all +
                  "; resume it with the plan that it was trained with, or one "
                  "compiled alike");
  if (expected.contains("plan_sha256") &&
      record.value("plan_sha256", Json()) != expected["plan_sha256"])
    bad(path, "was written by another plan; a strategy that keeps several "
              "weight versions resumes on its own plan only");
}

void checkIdentity(const std::string &path, const Json &record,
                   const RunIdentity &identity) {
  const Json shuffle =
      identity.shuffle ? Json(*identity.shuffle) : Json(nullptr);
  if (const Json &trained = record.at("shuffle"); trained != shuffle)
    throw Failure(Exit::Usage,
                  path + (trained.is_null()
                              ? ": was trained without --shuffle, leave it out"
                              : ": was trained with --shuffle " +
                                    trained.dump() + ", go on with the same"));
  if (record.at("seed").get<uint64_t>() != identity.seed)
    throw Failure(Exit::Usage, path + ": was trained with --seed " +
                                   record.at("seed").dump() +
                                   ", go on with the same");
}

} // namespace

std::string Checkpoint::mark() const {
  constexpr size_t kDigest = 16;
  return "the checkpoint of step " + std::to_string(steps) + ", " +
         sha256OfFile(path + "/commit.json").substr(0, kDigest);
}

std::map<std::string, std::pair<double, double>>
Checkpoint::otherSettings(const plan::Plan &plan) const {
  std::map<std::string, std::pair<double, double>> others;
  for (const auto &[name, mine] : settingsOf(plan))
    if (const auto its = settings.find(name);
        its != settings.end() && its->second != mine)
      others[name] = {its->second, mine};
  return others;
}

void refuseToReplace(const std::string &folder, const std::string &resumed) {
  std::error_code none;
  const std::string newest = newestOf(folder, none);
  if (newest.empty() ||
      (!resumed.empty() &&
       (fs::equivalent(folder, resumed, none) ||
        fs::equivalent(folder + "/" + newest, resumed, none))))
    return;
  throw Failure(Exit::Usage,
                "--checkpoint " + folder + " holds " + newest +
                    " of an earlier run, which this one would take the place "
                    "of; go on from it with --resume " +
                    folder + ", or give another folder");
}

void expectCheckpoints(const std::string &folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored))
    return expectWritable(folder);
  // A name that tidy removes, should the run be killed here.
  const std::string trial = folder + "/" + kWriting + padded(0, kDigits);
  orCannotWrite(folder,
                [&](auto &error) { fs::create_directory(trial, error); });
  fs::remove(trial, ignored);
}

Checkpoint::Checkpoint(const std::string &folder, const plan::Plan &plan,
                       const std::string &planFolder,
                       const std::optional<RunIdentity> &identity)
    : path(newestIn(folder)) {
  const std::string record = path + "/commit.json";
  const Json json = readRecord(record);
  try {
    if (json.at("version").get<int>() != kVersion)
      bad(record, "has version " + json.at("version").dump());
    steps = json.at("step").get<int64_t>();
    precision = json.value("precision", "");
    settings = json.value("settings", settings);
    data = json.value("data", data);
    rate = json.value("lr_schedule", rate);
    for (const Json &entry : json.at("shards")) {
      Shard shard;
      shard.file = entry.at("file").get<std::string>();
      shard.bytes = entry.at("bytes").get<int64_t>();
      shard.sha256 = entry.at("sha256").get<std::string>();
      if (shard.file.find('/') != std::string::npos)
        bad(record, "names a shard outside its folder");
      shards.push_back(shard);
    }
    checkFingerprint(record, json, plan, planFolder);
    if (identity)
      checkIdentity(record, json, *identity);
  } catch (const Json::exception &) {
    bad(record, "is damaged: a member is missing, or is not what is written "
                "there; resume from another checkpoint");
  }
  if (steps < 0)
    bad(record, "has a negative step");
}

void Checkpoint::checkShard(const Shard &shard, bool digest) const {
  const std::string file = path + "/" + shard.file;
  struct stat info{};
  if (::stat(file.c_str(), &info) != 0)
    bad(file, "is missing; the checkpoint is not whole");
  if (info.st_size != shard.bytes)
    bad(file, "has " + std::to_string(info.st_size) + " bytes instead of " +
                  std::to_string(shard.bytes) +
                  "; it is truncated or from "
                  "another checkpoint");
  if (digest && sha256OfFile(file) != shard.sha256)
    bad(file,
        "is damaged: its digest is not the one in commit.json; resume from "
        "another checkpoint");
}

Checkpoint::Shards Checkpoint::open(int rank, int ranks) const {
  Shards open;
  for (size_t i = 0; i < shards.size(); ++i) {
    checkShard(shards[i], false);
    open.files.push_back(
        std::make_unique<Safetensors>(path + "/" + shards[i].file));
    const Safetensors &file = *open.files.back();
    auto step = file.metadata.find("step");
    if (step == file.metadata.end() || step->second != std::to_string(steps))
      bad(file.path, "is a shard of step " +
                         (step == file.metadata.end() ? "?" : step->second) +
                         ", the checkpoint is of step " +
                         std::to_string(steps));
    checkShard(shards[i],
               i % static_cast<size_t>(ranks) == static_cast<size_t>(rank));
    for (auto &[name, entry] : file.entries)
      open.places[name] = {&file, &entry};
  }
  return open;
}

void Checkpoint::read(const Shards &open, const Tensor &tensor,
                      Device &device) const {
  auto place = open.places.find(tensor.name);
  if (place == open.places.end())
    bad(path,
        "has no tensor '" + tensor.name + "'" +
            (tensor.name.starts_with("optimizer/")
                 ? "; resume it with a plan compiled with the --optimizer "
                   "settings that it was trained with"
                 : ""));
  auto [file, entry] = place->second;
  if (entry->dtype != tensor.dtype || entry->shape != tensor.shape ||
      entry->bytes != tensor.bytes)
    bad(path, "tensor '" + tensor.name + "' has another type or shape");
  file->read(*entry, device, tensor.data);
}

void Checkpoint::load(RankState &state) const {
  const Shards open =
      this->open(state.rank, static_cast<int>(state.plan.ranks.size()));
  for (const Tensor &tensor : trainedTensors(state, steps))
    read(open, tensor, *state.device);
}

void Checkpoint::loadTrained(RankState &state,
                             const plan::Plan &training) const {
  const Shards open =
      this->open(state.rank, static_cast<int>(state.plan.ranks.size()));
  std::map<std::string, std::string> names;
  for (size_t i = 0; i < training.weights.size(); ++i)
    if (std::string name = newestName(training, static_cast<int>(i), steps);
        !name.empty())
      names[training.weights[i].name] = name;
  for (auto &unit : state.units)
    for (const plan::StageWeight &held : unit->stage->weights) {
      const plan::Weight &weight = state.plan.weights[held.weight];
      const auto name = names.find(weight.name);
      if (name == names.end())
        continue;
      char *place =
          unit->memory.at(plan::regionNamed(held.region)) + held.offset;
      read(open,
           {name->second, weight.dtype, weight.shape, place, weight.bytes,
            false},
           *state.device);
    }
}

} // namespace pipec
