//===- Untrained.cpp - weights that a loss leaves as they are -------------===//
#include "compiler/driver/Untrained.h"

#include "dialects/nn/NN.h"
#include "report/Format.h"

#include <algorithm>
#include <set>

using namespace mlir;

namespace pipec {

std::vector<std::string> trainedWeights(ModuleOp module) {
  std::set<StringRef> read;
  module.walk([&](nn::WeightOp op) { read.insert(op.getParameter()); });
  std::vector<std::string> names;
  for (auto parameter : module.getOps<nn::ParameterOp>())
    if (parameter.isTrained() && read.count(parameter.getSymName()))
      names.push_back(parameter.getSymName().str());
  return names;
}

/// The output that the loss is of: the one named, or the first of numbers with
/// a fraction.
static std::string outputOfLoss(const CompileOptions &options,
                                const onnx::ImportReport &model) {
  if (!options.logits.empty())
    return options.logits;
  for (const onnx::InputReport &output : model.outputs) {
    const size_t element = output.type.rfind('x') + 1; // "4x64xf32"
    if (const char c = output.type[element]; c == 'f' || c == 'b')
      return output.name;
  }
  return "";
}

void noteUntrained(const std::vector<std::string> &before, ModuleOp module,
                   const CompileOptions &options,
                   const onnx::ImportReport &model, Diagnostics &diagnostics) {
  constexpr size_t kNamed = 4;
  const std::vector<std::string> after = trainedWeights(module);
  std::vector<std::string> lost;
  std::copy_if(before.begin(), before.end(), std::back_inserter(lost),
               [&](const std::string &name) {
                 return std::find(after.begin(), after.end(), name) ==
                        after.end();
               });
  if (lost.empty())
    return;
  std::string names;
  for (size_t i = 0; i < std::min(lost.size(), kNamed); ++i)
    names += (i ? ", '" : "'") + lost[i] + "'";
  if (lost.size() > kNamed)
    names += " and " + std::to_string(lost.size() - kNamed) + " more";
  diagnostics.note(
      "the loss is of output '" + outputOfLoss(options, model) + "' alone: " +
      report::plural(static_cast<int64_t>(lost.size()), "weight") +
      " that it does not depend on " + (lost.size() == 1 ? "does" : "do") +
      " not train: " + names +
      (model.outputs.size() > 1 ? "; --logits NAME takes another output" : ""));
}

} // namespace pipec
