//===- EmittedCode.cpp - the code of stages as files ----------------------===//
#include "compiler/driver/EmittedCode.h"

#include "support/Failure.h"
#include "support/OutputFile.h"

#include <cerrno>
#include <filesystem>
#include <iostream>

namespace fs = std::filesystem;

namespace pipec {

static bool isBinary(const std::string &phase) {
  return phase == "object" || phase == "cubin";
}

/// "out/gpt.stage1.ptx" of "out/gpt.ptx".
static std::string nameOf(const std::string &output, size_t stage) {
  const fs::path path(output);
  const std::string name = path.stem().string() + ".stage" +
                           std::to_string(stage) + path.extension().string();
  return (path.parent_path() / name).string();
}

void checkCodeFiles(const std::string &phase, const std::string &output,
                    size_t stages, const std::vector<std::string> &inputs) {
  std::error_code ignored;
  if (phase.empty())
    return;
  if (!output.empty() &&
      (output.back() == '/' || fs::is_directory(output, ignored)))
    cannotWrite(output, EISDIR);
  if (stages > 1 && output.empty() && isBinary(phase))
    throw Failure(Exit::Usage,
                  "--emit " + phase + " writes a file a stage, this plan has " +
                      std::to_string(stages) + ": give -o FILE, or --stages 1");
  for (size_t i = 0; stages > 1 && !output.empty() && i < stages; ++i)
    for (const std::string &input : inputs)
      expectOther("-o", nameOf(output, i), input);
}

std::vector<std::string> writeCode(const std::string &phase,
                                   const std::string &output,
                                   const std::vector<std::string> &stages) {
  std::vector<std::string> files;
  const bool special = isSpecial(output);
  if (!output.empty() && stages.size() > 1 && !special) {
    for (size_t i = 0; i < stages.size(); ++i) {
      files.push_back(nameOf(output, i));
      writeFile(files.back(), stages[i]);
    }
    return files;
  }
  std::string all;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (phase == "ptx" && stages.size() > 1) // has one module in a file
      all += "// Stage " + std::to_string(i) + " of " +
             std::to_string(stages.size()) +
             ": cut here, ptxas takes one stage a file\n";
    all += stages[i];
  }
  if (output.empty())
    std::cout << all;
  else
    writeFile(output, all);
  if (!output.empty() && !special)
    files.push_back(output);
  return files;
}

} // namespace pipec
