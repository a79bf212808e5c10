//===- Export.cpp - the model with trained weights ------------------------===//
#include "runtime/run/Export.h"
#include "runtime/OnnxPatch.h"
#include "runtime/state/OutputFile.h"
#include "runtime/state/Tensors.h"

#include <cerrno>
#include <filesystem>
#include <unistd.h>

namespace pipec {

namespace fs = std::filesystem;

void exportModel(const plan::Plan &plan, const std::string &planFolder,
                 const std::string &target, const Fetch &fetch) {
  std::map<std::string, NewValues> values;
  for (size_t i = 0; i < plan.weights.size(); ++i) {
    const plan::Weight &weight = plan.weights[i];
    const auto index = static_cast<int>(i);
    const bool changes = weight.role == "weight" || weight.role == "state";
    if (!changes || !weight.exported || ownerOf(plan, index) < 0)
      continue;
    values[weight.name] = {
        weight.dtype, weight.bytes,
        [&fetch, index](const Sink &sink) { fetch(index, sink); }};
  }
  patchOnnx(findFile(plan.files[0], planFolder), target, values);
}

void checkExport(const plan::Plan &plan, const std::string &planFolder,
                 const std::string &target) {
  if (plan.files.empty())
    throw Failure(Exit::Usage, "--export: the plan names no model file");
  const std::string source = findFile(plan.files[0], planFolder);
  std::error_code error;
  for (const plan::File &file : plan.files) {
    const std::string path = findFile(file, planFolder);
    if (fs::equivalent(path, target, error) ||
        fs::equivalent(path, target + ".data", error))
      throw Failure(Exit::Usage, "--export " + target + ": would overwrite " +
                                     path + ", which the plan reads");
  }
  fs::path folder = fs::path(target).parent_path();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK) != 0)
    cannotWrite(target);
}

} // namespace pipec
