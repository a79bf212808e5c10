//===- CompileOptions.h - what `pipec MODEL.onnx` was asked -----*- C++ -*-===//
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pipec {

struct CompileOptions {
  std::string model;
  // Devices
  std::string gpus, cpus, clusterFile, device;
  // Shapes and inputs
  std::map<std::string, int64_t> dims;
  /// Name and file, as far as that can be told without the model: a name may
  /// have a '=' in it.
  std::vector<std::pair<std::string, std::string>> constants;
  // Training
  bool forwardOnly = false;
  int microbatches = 1;
  bool microbatchesGiven = false; ///< on the command line
  std::string loss = "cross-entropy";
  std::map<std::string, std::string> lossOptions;
  std::string logits;
  std::string optimizer = "sgd";
  std::string optimizerSettings;
  double clipNorm = 0;
  std::vector<std::string> freeze, trainOnly;
  bool tie = false, untie = false;
  std::string batchNorm; ///< train, inference; empty: as the program is for
  // Planning
  std::string strategy = "auto";
  int slices = 0; ///< pieces of a sequence; 0: not said
  std::string stages = "auto";
  std::string replicas;
  std::string stageFile;
  std::string recompute = "auto";
  std::string precision = "fp32"; ///< of contractions: fp32 or bf16
  std::string attention = "auto"; ///< fused, plain or auto: by the device
  std::string roundedWeights = "keep"; ///< or again, in every task
  std::string planner = "auto";
  /// Devices among which stages divide operators: a number, or auto.
  std::string tensorParallel = "1";
  std::string profile; ///< file of measured times
  std::string whatIf;  ///< axes of the table, empty: none
  int64_t memoryLimit = 0;
  bool limitHasUnit = true; ///< as it was typed, if it was
  /// Of the limit, what the planner leaves free: more than it counts (no flag:
  /// compileCommand raises it).
  int64_t memoryMargin = 0;
  /// The strategy is one that `auto` tries: as free in stages, replicas and
  /// idle devices (no flag).
  bool ofAuto = false;
  /// A share of the search alone, where many plans are tried (no flag).
  bool quick = false;
  /// The planner counts nothing of what code works in, which it may take for
  /// too much (no flag).
  bool withoutWorkspace = false;
  // Output
  bool dryRun = false, selfContained = false, quiet = false;
  std::string format = "text";
  std::string emit, dumpDirectory, output, dot;
  /// CPU that code is generated for: "native", or an LLVM CPU name.
  std::string targetCpu = "native";
  std::string targetGpu; ///< empty: sm_90

  bool operator==(const CompileOptions &) const = default;
};

/// Reads the command line. Throws Failure(Usage). Returns false when help or
/// the version was printed.
bool parseCompileOptions(int argc, char **argv, CompileOptions &options);

/// "16GiB", "512M", "1000000": bytes. Throws Failure(Usage), `where` in front.
int64_t parseBytes(const std::string &text, const std::string &where = "");

} // namespace pipec
