//===- Overwrite.cpp - outputs of a run that it reads ---------------------===//
#include "runtime/run/Overwrite.h"
#include "support/OutputFile.h"

#include <vector>

namespace pipec {

/// What the run reads.
static std::vector<std::string> inputs(const plan::Plan &plan,
                                       const RunOptions &options) {
  std::vector<std::string> paths = {options.plan + "/plan.json"};
  for (const auto &[name, path] : options.data)
    paths.push_back(path);
  for (const plan::File &file : plan.files) {
    if (!file.relative.empty())
      paths.push_back(options.plan + "/" + file.relative);
    if (!file.absolute.empty())
      paths.push_back(file.absolute);
  }
  for (const plan::Stage &stage : plan.stages)
    paths.push_back(options.plan + "/" + stage.library);
  return paths;
}

void refuseToOverwrite(const plan::Plan &plan, const RunOptions &options) {
  std::vector<NamedOutput> outputs = {{"--metrics", options.metrics},
                                      {"--trace", options.trace},
                                      {"--profile-out", options.profileOut},
                                      {"--export", options.exportFile}};
  if (!options.exportFile.empty()) // its weights, where they have their own
    outputs.push_back({"--export", options.exportFile + ".data"});
  for (const auto &[name, path] : options.outputs)
    outputs.push_back({"--output " + name, path});
  expectApart(outputs, inputs(plan, options));
}

} // namespace pipec
