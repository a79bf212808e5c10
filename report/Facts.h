//===- Facts.h - what text and page say about a plan ------------*- C++ -*-===//
//
// The terminal and the page use the same sentences.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/program/Plan.h"

#include <string>
#include <vector>

namespace pipec::report {

/// How many tensors and elements have a role.
struct RoleCount {
  int64_t tensors = 0, elements = 0;
};
RoleCount countRole(const plan::Plan &plan, const std::string &role);

std::string modelLine(const plan::Plan &plan);    ///< file, opset, nodes
std::string trainedLine(const plan::Plan &plan);  ///< tensors and elements
std::string trainingLine(const plan::Plan &plan); ///< loss, optimizer, batch
std::string planLine(const plan::Plan &plan);     ///< strategy and devices
std::string scheduleLine(const plan::Plan &plan); ///< name, bubble, definition
/// What the others of their kind stand beside: the longest task of a stage, the
/// peak of the fullest rank.
double longestTask(const plan::Plan &plan);
int64_t highestPeak(const plan::Plan &plan);
std::string predictedLine(const plan::Plan &plan);
/// Whether predictions are of times that were measured, or of a device that is
/// known; a processor is taken by its clock and vectors alone.
bool areTimed(const plan::Cluster &cluster);
std::string baselineLine(const plan::Plan &plan, const plan::BaselineRow &row);

/// The tensors that do not train, by name, as many as fit in two lines.
std::vector<std::string> frozenLines(const plan::Plan &plan, int columns);

/// "first … last", in so many columns where the names are long.
std::string layers(const plan::Stage &stage, int columns = 1 << 20);
/// The same of a stage of a plan: an end that the next stage goes on with (one
/// ONNX node may have become several operators) is a "(part)".
std::string layers(const plan::Plan &plan, size_t stage, int columns = 1 << 20);
/// What gives work to devices that have none.
std::string whatTakesMore(const plan::Plan &plan);
std::string shapeText(const std::vector<int64_t> &shape);
/// What --data wants for an input: "[N, 64]", "one array [4, 64]".
std::string arrayText(const plan::Input &input);

/// For each weight the stages that hold it.
std::vector<std::vector<int>> stagesOfWeights(const plan::Plan &plan);
std::vector<int> stagesOfInput(const plan::Plan &plan, int input);

/// Ranks with the same stages and memory: replicas. In order of the first.
struct RankGroup {
  std::vector<int> ranks;
};
std::vector<RankGroup> equalRanks(const plan::Plan &plan);

} // namespace pipec::report
