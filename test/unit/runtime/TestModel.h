//===- TestModel.h - plans for the stage programs of stage.c ----*- C++ -*-===//
#pragma once

#include "runtime/program/Plan.h"

#include <map>
#include <string>
#include <vector>

namespace pipec::test {

// As stage.c is compiled (CMakeLists.txt).
constexpr int kLayers = 4, kBatch = 4, kWidth = 16, kSamples = 23;

/// A way to train the model.
struct Scenario {
  /// First layer of each stage, and kLayers: {0, 2, 4} is two stages.
  std::vector<int> cuts = {0, 4};
  std::vector<std::vector<int>> ranks = {{0}}; ///< of each stage
  int microbatches = 4;                        ///< 1 when streaming
  std::string schedule = "1f1b"; ///< gpipe, 1f1b, split (I and W), stream
  double clip = 0;
  bool tied = true;       ///< the two uses of e are one weight, else e and f
  bool validated = false; ///< post-validation
  int stages() const { return static_cast<int>(ranks.size()); }
  bool stream() const { return schedule == "stream"; }
};

/// The named setups the tests run over.
struct NamedScenario {
  const char *name;
  Scenario setup;
};
const std::vector<NamedScenario> &scenarios();
const Scenario &scenarioNamed(const std::string &name);

/// Names of the model's weights: W0 b0 W1 b1 ... e, and f when not tied.
std::vector<std::string> weightNames(const Scenario &setup);
/// Initial values, a function of the name; those of f are those of e.
std::vector<float> initialValue(const std::string &name);
/// Rows of the inputs x, target, label.
std::vector<float> sampleX(int64_t row);
std::vector<float> sampleTarget(int64_t row);
std::vector<int64_t> sampleLabels();

/// Writes plan.json, model.onnx, stages/ and x.npy, target.npy, label.npy into
/// a folder.
plan::Plan writePlan(const Scenario &setup, const std::string &folder);

/// The initializers of a model file, by name.
std::map<std::string, std::vector<float>> readModel(const std::string &path);

/// The --data arguments for that folder.
std::vector<std::string> dataArguments(const std::string &folder);

/// A plain implementation of the training, sharing no code with the runtime.
struct Reference {
  std::vector<double> losses;
  std::vector<std::vector<float>> weights; ///< by weightNames, at the end
  std::vector<std::vector<float>> means;   ///< running means by layer
};
Reference train(const Scenario &setup, int steps);

/// An empty folder below the test's temporary directory.
std::string freshFolder(const std::string &name);

} // namespace pipec::test
