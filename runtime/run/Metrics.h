//===- Metrics.h - JSON lines of a run --------------------------*- C++ -*-===//
#pragma once

#include "support/CoreUse.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pipec {

/// What a rank reports at the end.
struct RankFigures {
  int64_t peak_bytes = 0, predicted_peak_bytes = 0, rss_bytes = 0;
  int64_t overhead_bytes = 0; ///< of a GPU's memory, beside the arena
  bool hasGpuCode = false, isPtx = false; ///< DeviceFacts, of GPUs
  int64_t biasesAdded = 0, biasesRefused = 0, attended = 0, tuned = 0;
  double busy_s = 0;
  int64_t threads = 1; ///< that share the rank's loops
  CoreUse cores;       ///< since it was loaded
};

struct Summary {
  int64_t steps = 0;
  int64_t samples = 0; ///< of a pass without updates; 0 when training
  bool hasLoss = true;
  double step_s = 0, predicted_step_s = 0, final_loss = 0;
  double samples_per_s = 0;
  std::vector<RankFigures> ranks;
};

/// The metrics file: a line per step, written through at once, and a summary;
/// whole lines also where there is no room for the next one.
class Metrics {
public:
  /// `path` empty: writes nothing. A run that goes on after `resumedAt` steps
  /// keeps the lines of those steps and drops later ones. Failure(CannotWrite).
  Metrics(const std::string &path, int64_t resumedAt);
  ~Metrics();
  Metrics(const Metrics &) = delete;

  /// `step` from 0; written from 1.
  void step(int64_t step, double loss, double seconds, double samplesPerSecond);
  void summary(const Summary &summary);

private:
  void line(const std::string &text);
  void cut() const;

  std::string path;
  int file = -1;
  int64_t written = 0; ///< bytes, in whole lines
};

/// {"steps":…,"ranks":[…],…} in one line.
std::string toJson(const Summary &summary);

} // namespace pipec
