//===- CompileFiles.cpp - what a compile reads and writes -----------------===//
#include "compiler/driver/CompileFiles.h"

#include "compiler/driver/OrderFile.h"
#include "compiler/driver/PlanFolder.h"
#include "support/Failure.h"
#include "support/OutputFile.h"

#include <filesystem>

namespace fs = std::filesystem;

namespace pipec {

std::string outputFolder(const CompileOptions &options) {
  return options.output.empty()
             ? fs::path(options.model).stem().string() + ".plan"
             : options.output;
}

std::vector<std::string> inputFiles(const CompileOptions &options) {
  std::vector<std::string> paths = {options.model, options.clusterFile,
                                    options.stageFile, options.profile};
  for (const auto &[name, path] : options.constants)
    // The name may go on: what stands behind any '=' may be the file.
    for (size_t at = 0; at != std::string::npos && at < path.size();) {
      paths.push_back(path.substr(at));
      const size_t equals = path.find('=', at);
      at = equals == std::string::npos ? equals : equals + 1;
    }
  if (const auto weight = options.lossOptions.find("weight");
      weight != options.lossOptions.end())
    paths.push_back(weight->second);
  if (const auto order = orderFileOf(options.strategy))
    paths.push_back(*order);
  std::erase(paths, "");
  return paths;
}

/// A folder that is no plan is refused when it is to be replaced.
static bool mayBeReplaced(const std::string &folder) {
  std::error_code ignored;
  return !fs::exists(folder, ignored) ||
         fs::exists(folder + "/plan.json", ignored);
}

/// Whether the plan in `folder` writes anew what is read from this file.
static bool isWrittenAnew(const CompileOptions &options,
                          const std::string &folder, const std::string &input) {
  const auto is = [&](const char *name) {
    std::error_code error;
    return fs::equivalent(input, folder + "/" + name, error);
  };
  return (input == options.stageFile && is("plan.json")) ||
         (input == orderFileOf(options.strategy) && is("schedule.csv"));
}

void refuseToOverwrite(const CompileOptions &options,
                       const std::vector<std::string> &inputs) {
  expectApart({{"-o", options.output}, {"--dot", options.dot}}, inputs);
  const std::string folder = outputFolder(options);
  if (!options.emit.empty() || (options.dryRun && options.output.empty()) ||
      !mayBeReplaced(folder))
    return;
  const std::string option = options.output.empty() ? "without -o," : "-o";
  if (!options.dryRun && !options.dumpDirectory.empty() &&
      goesWith(folder, options.dumpDirectory))
    throw Failure(Exit::Usage,
                  option + " " + folder + ": --dump-ir " +
                      options.dumpDirectory +
                      " would be in it before it is there; choose another "
                      "place");
  for (const std::string &input : inputs)
    if (!isWrittenAnew(options, folder, input))
      for (const std::string &entry : planEntries())
        if (goesWith(folder + "/" + entry, input))
          throw Failure(Exit::Usage,
                        option + " " + folder + ": would replace " + input +
                            ", which is of the plan there and is needed; "
                            "choose another place");
}

} // namespace pipec
