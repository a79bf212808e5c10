//===- Metrics.cpp - JSON lines of a run ----------------------------------===//
#include "runtime/run/Metrics.h"
#include "support/OutputFile.h"

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace pipec {

using Json = nlohmann::ordered_json;

namespace {

/// The lines of the steps up to `last` in an earlier run's file; one without an
/// end is half a line.
std::string linesUpTo(const std::string &path, int64_t last) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") ||
        !json["step"].is_number_integer() || json["step"] > last)
      break;
    kept += line + "\n";
  }
  return kept;
}

} // namespace

Metrics::Metrics(const std::string &path, int64_t resumedAt) : path(path) {
  if (path.empty())
    return;
  makeFolderOf(path);
  const std::string kept = resumedAt ? linesUpTo(path, resumedAt) : "";
  file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0)
    cannotWrite(path);
  // Lines that are kept are not written again: the disk may be full by now.
  written = static_cast<int64_t>(kept.size());
  cut();
}

Metrics::~Metrics() {
  if (file >= 0)
    ::close(file);
}

/// Leaves what is written, where the file is not one that only takes more.
void Metrics::cut() const {
  if (::ftruncate(file, written) == 0)
    ::lseek(file, written, SEEK_SET);
}

/// All of it or nothing.
void Metrics::line(const std::string &text) {
  for (size_t at = 0; file >= 0 && at < text.size();) {
    const ssize_t wrote = ::write(file, text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote < 0) {
      const int why = errno;
      cut();
      cannotWrite(path, why);
    }
    at += static_cast<size_t>(wrote);
  }
  written += static_cast<int64_t>(text.size());
}

void Metrics::step(int64_t step, double loss, double seconds,
                   double samplesPerSecond) {
  if (file < 0)
    return;
  const Json json = {{"step", step + 1},
                     {"loss", loss},
                     {"seconds", seconds},
                     {"samples_per_s", samplesPerSecond}};
  line(json.dump() + "\n");
}

void Metrics::summary(const Summary &summary) {
  Json json = Json::parse(toJson(summary));
  json.erase("samples_per_s");
  json.erase("final_loss");
  line(Json{{"summary", json}}.dump() + "\n");
}

std::string toJson(const Summary &summary) {
  Json ranks = Json::array();
  bool hasGpuCode = false, isPtx = false;
  int64_t biasesAdded = 0, biasesRefused = 0, attended = 0, tuned = 0;
  for (size_t i = 0; i < summary.ranks.size(); ++i) {
    const RankFigures &rank = summary.ranks[i];
    ranks.push_back({{"rank", i},
                     {"peak_bytes", rank.peak_bytes},
                     {"predicted_peak_bytes", rank.predicted_peak_bytes},
                     {"busy_s", rank.busy_s},
                     {"rss_bytes", rank.rss_bytes}});
    if (rank.overhead_bytes)
      ranks.back()["overhead_bytes"] = rank.overhead_bytes;
    hasGpuCode |= rank.hasGpuCode;
    isPtx |= rank.isPtx;
    biasesAdded += rank.biasesAdded;
    biasesRefused += rank.biasesRefused;
    attended += rank.attended;
    tuned += rank.tuned;
  }
  Json json = {{"steps", summary.steps},
               {"ranks", ranks},
               {"step_s", summary.step_s},
               {"predicted_step_s", summary.predicted_step_s},
               {"samples_per_s", summary.samples_per_s}};
  if (hasGpuCode) {
    json["code"] = isPtx ? "ptx" : "cubin";
    json["biases_added"] = biasesAdded;
    json["biases_refused"] = biasesRefused;
    json["attention_by_cudnn"] = attended;
    json["products_tuned"] = tuned;
  }
  if (summary.samples)
    json["samples"] = summary.samples;
  if (summary.hasLoss)
    json[summary.samples ? "loss" : "final_loss"] = summary.final_loss;
  return json.dump();
}

} // namespace pipec
