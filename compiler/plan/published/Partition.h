//===- Partition.h - the planner on published inputs ------------*- C++ -*-===//
//
// Reads a PipeDream profile, a dnn-partitioning placement graph or a Piper
// instance, solves it under its own published objective, has the result
// recomputed by PublishedVerifier and returns it in one form.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pipec::published {

enum class GraphFormat { PipeDream, Placement, Piper };
enum class Objective { PipeDream, Placement, Piper, Step };

struct PartitionOptions {
  std::string path; ///< for messages
  std::string text;
  std::optional<GraphFormat> format;  ///< guessed when absent
  std::optional<Objective> objective; ///< the format's own when absent
  /// Machines of every level, outermost first, the last one's are devices;
  /// empty where the user said nothing.
  std::vector<int> devices;
  /// bytes/s, outermost first; empty: the file's, or none given
  std::vector<double> bandwidths;
  double memoryLimit = 0; ///< bytes; 0: the file's
  int microbatches = 0;   ///< 0: the file's
  bool contiguous = true;
  bool straddle = false;
  std::string strategy; ///< for Objective::Step; empty: 1f1b
};

struct PartitionStage {
  std::vector<std::string> nodes;
  /// That the cost model leaves out, beside the first node that reads them or
  /// the last one that they read.
  std::vector<std::string> leftOut;
  int replicas = 1;
  int tensorParallel = 1;
  std::vector<int> devices;
  std::string kind = "gpu";            ///< or "cpu"
  std::vector<std::string> recomputed; ///< nodes that run a slimmer variant
  double load = 0;                     ///< in the objective's unit
};

struct Partition {
  std::string objectiveName, unit;
  double objective = 0;
  std::optional<double> dataParallel; ///< absent when it does not fit or apply
  std::optional<double> bound;        ///< nothing can be below
  bool exact = false; ///< proved optimal within its search space
  size_t states = 0;  ///< cuts considered
  std::vector<PartitionStage> stages;
  std::string binding; ///< the slowest stage and what makes it slow
  double seconds = 0;  ///< processor time this took, on one thread
  double wallSeconds = 0;

  /// For drawing: every node's id and label, and the edges.
  std::vector<std::pair<std::string, std::string>> nodes;
  std::vector<std::pair<std::string, std::string>> edges;
};

/// As --graph-format has it.
std::string formatName(GraphFormat format);

GraphFormat guessFormat(const std::string &text, const std::string &path);

/// All devices that the options name, 0 where they name none.
int64_t devicesOf(const PartitionOptions &options);

/// A bandwidth for each of so many levels: the one that was given, or as many
/// as there are; a single level's is the last of two. Empty where none were
/// given; throws Failure(Exit::Usage) where their number is another.
std::vector<double> bandwidthsOf(const PartitionOptions &options,
                                 size_t levels);

/// Of a PipeDream profile, under its own objective.
Partition partitionPipeDream(const PartitionOptions &options);

/// Throws Failure: Exit::BadModel, Exit::Usage, Exit::NoFit.
Partition partitionGraph(const PartitionOptions &options);

} // namespace pipec::published
