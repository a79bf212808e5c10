//===- Tensors.cpp - the named tensors of a rank --------------------------===//
#include "runtime/state/Tensors.h"
#include "runtime/data/NotANumber.h"
#include "runtime/program/PlanCheck.h"
#include "runtime/program/Sequence.h"
#include "runtime/program/Sha256.h"
#include "runtime/program/Versions.h"
#include "support/Failure.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace pipec {

std::string findFile(const plan::File &file, const std::string &folder) {
  struct stat info{};
  for (const std::string &path :
       {file.relative.empty() ? "" : folder + "/" + file.relative,
        file.absolute})
    if (!path.empty() && ::stat(path.c_str(), &info) == 0)
      return path;
  throw Failure(Exit::NoInput,
                (file.absolute.empty() ? file.relative : file.absolute) +
                    ": not found, nor at " + folder + "/" + file.relative +
                    "; it holds the plan's initial weights: put it back "
                    "there, or compile again (with --self-contained the plan "
                    "has a copy)");
}

namespace {

/// The first rank on its host checks the digests for the others there.
bool checksDigests(const plan::Plan &plan, int rank) {
  for (const plan::Rank &other : plan.ranks)
    if (other.host == plan.ranks[rank].host)
      return other.rank == rank;
  return true;
}

/// A file of the plan folder is the plan's, any other the model's.
Failure changed(const std::string &path, const std::string &folder,
                const char *what) {
  namespace fs = std::filesystem;
  fs::path whole = fs::path(folder + "/").lexically_normal().parent_path();
  if (whole.filename() == plan::kEvaluationFolder)
    whole = whole.parent_path();
  const std::string inside =
      fs::path(path).lexically_normal().lexically_relative(whole).string();
  const bool isOurs = !inside.empty() && inside.compare(0, 2, "..") != 0;
  return {
      isOurs ? Exit::BadPlan : Exit::BadModel,
      path + ": is not the file that was compiled (its " + what +
          " differs); " +
          (isOurs ? "copy the plan folder again" : "put the original back") +
          ", or compile the model again"};
}

class WeightFile {
public:
  WeightFile(const plan::File &file, const std::string &folder, bool verify)
      : path(findFile(file, folder)),
        descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat info{};
    if (descriptor < 0 || ::fstat(descriptor, &info) != 0)
      throw Failure(Exit::NoInput, path + ": " + std::strerror(errno));
    const bool isOfSize = info.st_size == file.bytes;
    if (!isOfSize ||
        (verify && !file.sha256.empty() && sha256OfFile(path) != file.sha256)) {
      ::close(descriptor);
      throw changed(path, folder, isOfSize ? "digest" : "size");
    }
  }
  ~WeightFile() { ::close(descriptor); }
  WeightFile(const WeightFile &) = delete;

  void read(char *to, int64_t offset, int64_t length) const {
    while (length > 0) {
      const ssize_t got =
          ::pread(descriptor, to, static_cast<size_t>(length), offset);
      if (got < 0 && errno == EINTR)
        continue;
      if (got <= 0)
        throw Failure(Exit::NoInput, path + ": " +
                                         (got ? std::strerror(errno)
                                              : "ends before its weights"));
      to += got, offset += got, length -= got;
    }
  }

private:
  std::string path;
  int descriptor;
};

} // namespace

void loadInitial(RankState &state, bool verifyDigests) {
  const plan::Plan &plan = state.plan;
  const bool verify = verifyDigests && checksDigests(plan, state.rank);
  for (size_t i = 0; i < plan.files.size(); ++i) {
    const auto id = static_cast<int>(i);
    auto needed = [&](const plan::StageWeight &weight) {
      return plan.weights[weight.weight].source.file == id;
    };
    const bool any =
        std::any_of(state.units.begin(), state.units.end(), [&](auto &unit) {
          return std::any_of(unit->stage->weights.begin(),
                             unit->stage->weights.end(), needed);
        });
    if (!any && !verify)
      continue;
    const WeightFile file(plan.files[i], state.folder, verify);
    for (auto &unit : state.units)
      for (const plan::StageWeight &weight : unit->stage->weights) {
        if (!needed(weight))
          continue;
        const plan::Weight &tensor = plan.weights[weight.weight];
        state.device->write(
            unit->memory.at(plan::regionNamed(weight.region)) + weight.offset,
            tensor.bytes, [&](char *piece, int64_t offset, int64_t count) {
              file.read(piece, tensor.source.offset + offset, count);
            });
      }
  }
}

std::string weightWithNan(const plan::Plan &plan, const std::string &folder) {
  constexpr int64_t kPiece = 1 << 20; // of whole elements
  std::vector<char> piece(kPiece);
  try {
    for (size_t id = 0; id < plan.files.size(); ++id) {
      const WeightFile file(plan.files[id], folder, false);
      for (const plan::Weight &weight : plan.weights) {
        if (weight.source.file != static_cast<int>(id))
          continue;
        for (int64_t at = 0; at < weight.bytes; at += kPiece) {
          const int64_t count = std::min(kPiece, weight.bytes - at);
          file.read(piece.data(), weight.source.offset + at, count);
          if (firstNan(weight.dtype, piece.data(),
                       count / plan::dtypeBytes(weight.dtype)) >= 0)
            return weight.name;
        }
      }
    }
  } catch (const Failure &) { // it is asked for behind another failure
  }
  return "";
}

std::vector<Tensor> trainedTensors(RankState &state, int64_t steps) {
  const plan::Plan &plan = state.plan;
  const bool stream = plan.strategy.update == "round";
  std::vector<Tensor> tensors;
  for (auto &unit : state.units) {
    const plan::Stage &stage = *unit->stage;
    const auto [oldest, latest] = plan::versionsAfter(plan, stage, steps);
    const std::string prefix =
        stream ? "stage/" + std::to_string(stage.id) + "/" : "";
    for (const plan::StageWeight &weight : stage.weights) {
      if (weight.region == "constants")
        continue;
      const plan::Weight &tensor = plan.weights[weight.weight];
      const bool owned =
          unit->leads() &&
          (stream || firstStageOf(plan, weight.weight) == stage.id);
      auto add = [&](const std::string &name, const std::string &dtype,
                     char *data, int64_t bytes) {
        tensors.push_back(
            {prefix + name, dtype, tensor.shape, data, bytes, owned});
      };
      if (weight.region == "state") {
        add("state/" + tensor.name, tensor.dtype,
            unit->memory.at(PIPEC_STATE) + weight.offset, tensor.bytes);
        continue;
      }
      for (int64_t version = oldest; version <= latest; ++version)
        add(stream ? "weight/" + std::to_string(version) + "/" + tensor.name
                   : "weight/" + tensor.name,
            tensor.dtype, unit->memory.weights(version) + weight.offset,
            tensor.bytes);
      for (auto &[slot, offset] : weight.optimizer)
        add("optimizer/" + slot + "/" + tensor.name, "float32",
            unit->memory.at(PIPEC_OPTIMIZER) + offset, elements(tensor) * 4);
    }
  }
  return tensors;
}

std::string newestName(const plan::Plan &plan, int weight, int64_t steps) {
  const int first = firstStageOf(plan, weight);
  const plan::Weight &tensor = plan.weights[weight];
  if (first < 0 || (tensor.role != "weight" && tensor.role != "state"))
    return "";
  if (plan.strategy.update != "round")
    return tensor.role + "/" + tensor.name;
  const std::string prefix = "stage/" + std::to_string(first) + "/";
  if (tensor.role == "state")
    return prefix + "state/" + tensor.name;
  const int64_t version = plan::updatesAfter(plan, plan.stages[first], steps);
  return prefix + "weight/" + std::to_string(version) + "/" + tensor.name;
}

char *newest(RankState &state, int index, int64_t steps) {
  for (auto &unit : state.units)
    for (const plan::StageWeight &weight : unit->stage->weights) {
      if (weight.weight != index)
        continue;
      const int64_t version =
          plan::updatesAfter(state.plan, *unit->stage, steps);
      return (weight.region == "weights"
                  ? unit->memory.weights(version)
                  : unit->memory.at(plan::regionNamed(weight.region))) +
             weight.offset;
    }
  return nullptr;
}

int firstStageOf(const plan::Plan &plan, int weight) {
  for (const plan::Stage &stage : plan.stages)
    for (const plan::StageWeight &held : stage.weights)
      if (held.weight == weight)
        return stage.id;
  return -1;
}

int ownerOf(const plan::Plan &plan, int weight) {
  const int stage = firstStageOf(plan, weight);
  return stage < 0 ? -1 : plan.stages[stage].ranks[0];
}

} // namespace pipec
