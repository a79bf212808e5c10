//===- PlanFolder.cpp - the plan directory on disk ------------------------===//
#include "compiler/driver/PlanFolder.h"

#include "runtime/program/Sha256.h"
#include "support/Failure.h"
#include "support/OutputFile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <utility>

namespace fs = std::filesystem;

namespace pipec {
namespace {

constexpr const char *kFolded = "weights.safetensors", *kModel = "model";
constexpr std::streamsize kCopied = 1 << 20; ///< bytes at a time

/// safetensors' names of element types.
std::string safetensorsType(const std::string &dtype) {
  static const std::map<std::string, std::string> names = {
      {"float32", "F32"},   {"float64", "F64"}, {"float16", "F16"},
      {"bfloat16", "BF16"}, {"int64", "I64"},   {"int32", "I32"},
      {"int16", "I16"},     {"int8", "I8"},     {"uint8", "U8"},
      {"uint16", "U16"},    {"uint32", "U32"},  {"uint64", "U64"},
      {"bool", "BOOL"}};
  return names.at(dtype);
}

} // namespace

const std::vector<std::string> &planEntries() {
  static const std::vector<std::string> names = {
      "plan.json",   "stages", plan::kEvaluationFolder, kFolded, kModel,
      "report.html", "launch", "schedule.csv"};
  return names;
}

PlanFolder::PlanFolder(const std::string &given)
    : path(fs::absolute(given).lexically_normal().string()) {
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  std::error_code error;
  if (fs::is_symlink(path, error) && fs::exists(path, error))
    path = fs::canonical(path, error).string(); // the plan behind the link
  if (fs::exists(path, error) && !fs::exists(path + "/plan.json", error) &&
      !(fs::is_directory(path, error) && fs::is_empty(path, error)))
    throw Failure(Exit::CannotWrite,
                  "cannot write " + path +
                      ": it exists and is no plan; choose another -o");
  makeFolderOf(path);
  copy.emplace(path, WorkingCopy::Kind::Folder);
  temporaryPath = copy->path();
}

PlanFolder::PlanFolder(const PlanFolder &outer, const std::string &name)
    : path(outer.path + "/" + name),
      temporaryPath(outer.temporaryPath + "/" + name) {}

PlanFolder::~PlanFolder() {
  std::error_code error;
  if (copy && !temporaryPath.empty())
    fs::remove_all(temporaryPath, error);
}

void PlanFolder::writeFile(const std::string &relative,
                           const std::string &content) {
  const std::string file = temporaryPath + "/" + relative;
  makeFolderOf(file);
  OutputFile out(file, path + "/" + relative);
  out.write(content);
  out.finish();
}

/// The system's own copy calls a full disk an input/output error.
void PlanFolder::copyFile(const std::string &from,
                          const std::string &relative) {
  const std::string file = temporaryPath + "/" + relative;
  makeFolderOf(file);
  OutputFile out(file, path + "/" + relative);
  std::ifstream in(from, std::ios::binary);
  std::vector<char> part(kCopied);
  while (in.read(part.data(), kCopied) || in.gcount() > 0)
    out.write(part.data(), in.gcount());
  if (!in.eof())
    throw Failure(Exit::NoInput, "cannot read " + from + ": " +
                                     std::strerror(errno) +
                                     "; the model's files are needed to the "
                                     "end with --self-contained");
  out.finish();
}

void PlanFolder::writeFolded(plan::Plan &plan,
                             const std::map<std::string, std::string> &bytes) {
  nlohmann::ordered_json header;
  std::string data;
  for (const plan::Weight &w : plan.weights) {
    auto it = bytes.find(w.name);
    if (it == bytes.end())
      continue;
    header[w.name] = {
        {"dtype", safetensorsType(w.dtype)},
        {"shape", w.shape},
        {"data_offsets", {data.size(), data.size() + it->second.size()}}};
    data += it->second;
  }
  if (data.empty() && header.is_null())
    return;
  // Names that are not valid UTF-8 are refused with the plan, which has them.
  std::string text = header.dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  uint64_t length = text.size();
  std::string file(reinterpret_cast<const char *>(&length), 8);
  file += text;
  int64_t start = file.size();
  writeFile(kFolded, file + data);
  int index = plan.files.size();
  plan.files.push_back({kFolded, "", "", 0});
  int64_t offset = start;
  for (plan::Weight &w : plan.weights)
    if (auto it = bytes.find(w.name); it != bytes.end()) {
      w.source = {index, offset, static_cast<int64_t>(it->second.size())};
      offset += it->second.size();
    }
}

/// The file of folded tensors in this folder.
void PlanFolder::addOwn(plan::File &file) {
  std::error_code error;
  file.absolute = "";
  const std::string here = temporaryPath + "/" + file.relative;
  file.bytes = static_cast<int64_t>(fs::file_size(here, error));
  file.sha256 = sha256OfFile(here);
}

void PlanFolder::shareFiles(plan::Plan &plan, const plan::Plan &outer) {
  for (size_t i = 0; i < plan.files.size(); ++i) {
    if (plan.files[i].relative == kFolded) {
      addOwn(plan.files[i]);
      continue;
    }
    plan.files[i] = outer.files.at(i);
    plan.files[i].relative = "../" + plan.files[i].relative;
  }
  plan.model.sha256 = outer.model.sha256;
}

void PlanFolder::addFiles(plan::Plan &plan, bool copy) {
  std::error_code error;
  fs::path modelFolder;
  for (plan::File &file : plan.files) {
    if (file.relative == kFolded) {
      addOwn(file);
      continue;
    }
    fs::path absolute = fs::absolute(file.absolute).lexically_normal();
    if (modelFolder.empty())
      modelFolder = absolute.parent_path();
    file.absolute = absolute.string();
    file.relative = fs::path(absolute).lexically_relative(path).string();
    file.bytes = fs::file_size(absolute, error);
    file.sha256 = sha256OfFile(file.absolute);
    if (!copy)
      continue;
    fs::path inside =
        fs::path(kModel) / absolute.lexically_relative(modelFolder);
    copyFile(absolute.string(), inside.string());
    file.relative = inside.string();
  }
  if (!plan.files.empty())
    plan.model.sha256 = plan.files[0].sha256;
}

void PlanFolder::addStages(plan::Plan &plan) const {
  for (plan::Stage &stage : plan.stages)
    stage.sha256 = sha256OfFile(temporaryPath + "/" + stage.library);
}

std::string PlanFolder::shown(std::string message) const {
  for (size_t at = 0; !temporaryPath.empty() &&
                      (at = message.find(temporaryPath, at)) != message.npos;
       at += path.size())
    message.replace(at, temporaryPath.size(), path);
  return message;
}

void PlanFolder::rethrow(const Failure &failure) const {
  const std::string message = shown(failure.what());
  if (message == failure.what())
    throw; // what it is besides
  throw Failure(failure.code, message);
}

/// What is in the folder of a plan, and was not put there by its compilation.
static std::vector<std::string> othersIn(const std::string &folder) {
  std::error_code error;
  std::vector<std::string> others;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (std::ranges::find(planEntries(), name) == planEntries().end())
      others.push_back(name);
  }
  return others;
}

void PlanFolder::takeOver(const std::string &old) const {
  std::error_code error;
  std::string left, why;
  for (const std::string &name : othersIn(old)) {
    fs::rename(old + "/" + name, path + "/" + name, error);
    if (error)
      left += (left.empty() ? "" : ", ") + name, why = error.message();
  }
  for (const std::string &name : planEntries())
    fs::remove_all(old + "/" + name, error);
  fs::remove(old, error); // where it is empty
  if (!left.empty())
    throw Failure(Exit::CannotWrite, "the plan " + path + " is new, but " +
                                         left + " of the folder before (" +
                                         why + ") is in " + old +
                                         ": move it from there");
}

/// What others have put into the folder is never under a name that a later
/// compilation sweeps: it survives wherever this one ends.
void PlanFolder::commit() {
  std::error_code error;
  const bool keeps = !othersIn(path).empty();
  const std::string mark = temporaryPath.substr(temporaryPath.rfind('-'));
  if (keeps) {
    fs::rename(temporaryPath, path + ".before" + mark, error);
    if (error)
      cannotWrite(path, error.value());
    temporaryPath = path + ".before" + mark;
  }
  // With what is there under this name, whatever stops us where.
  if (::renameat2(AT_FDCWD, temporaryPath.c_str(), AT_FDCWD, path.c_str(),
                  RENAME_EXCHANGE) == 0) {
    const std::string old = std::exchange(temporaryPath, "");
    if (keeps)
      takeOver(old);
    else
      fs::remove_all(old, error);
    return;
  }
  // There is nothing, or the file system cannot: an empty folder gives way.
  std::optional<WorkingCopy> swept;
  std::string old;
  if (fs::exists(path, error)) {
    if (!keeps)
      swept.emplace(path, WorkingCopy::Kind::Folder);
    old = keeps ? path + ".old" + mark : swept->path();
    fs::rename(path, old, error);
    if (error)
      cannotWrite(path, error.value());
  }
  fs::rename(temporaryPath, path, error);
  if (error) {
    const int why = error.value();
    if (!old.empty())
      fs::rename(old, path, error);
    cannotWrite(path, why);
  }
  temporaryPath.clear();
  if (keeps)
    takeOver(old);
  else if (!old.empty())
    fs::remove_all(old, error);
}

} // namespace pipec
