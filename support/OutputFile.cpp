//===- OutputFile.cpp - files that appear whole or not at all -------------===//
#include "support/OutputFile.h"
#include "support/Failure.h"
#include "support/TerminalProgress.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pipec {

namespace fs = std::filesystem;

namespace {

const char *remedyOf(int error) {
  switch (error) {
  case ENOSPC:
  case EDQUOT:
    return "free some space there, or choose another place";
  case EACCES:
  case EPERM:
  case EROFS:
    return "choose a place where this user may write";
  case EFBIG:
    return "files may not become so large here (ulimit -f)";
  case EISDIR:
    return "give the name of a file in it";
  default:
    return "choose another place";
  }
}

} // namespace

void cannotWrite(const std::string &path, int error) {
  throw Failure(Exit::CannotWrite, "cannot write " + path + ": " +
                                       std::strerror(error) + "; " +
                                       remedyOf(error));
}
void cannotWrite(const std::string &path) { cannotWrite(path, errno); }

bool isSpecial(const std::string &path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_regular_file(path, ignored);
}

std::string folderOf(const std::string &path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void makeFolderOf(const std::string &path) {
  std::error_code error;
  fs::create_directories(folderOf(path), error);
  if (error)
    cannotWrite(path, error.value());
}

void expectWritable(const std::string &path) {
  struct stat info{};
  const bool there = ::stat(path.c_str(), &info) == 0;
  if (there && S_ISDIR(info.st_mode))
    cannotWrite(path, EISDIR);
  if (there && !S_ISREG(info.st_mode)) {
    if (::access(path.c_str(), W_OK) != 0)
      cannotWrite(path);
    return;
  }
  // The first name on the way that is not there yet: it can be made where a
  // file can. Permissions alone do not say so (/proc, a full disk).
  std::string first = path;
  std::error_code ignored;
  for (std::string up = folderOf(first);
       up != first && !fs::exists(up, ignored); up = folderOf(up))
    first = up;
  const WorkingCopy probe(first, WorkingCopy::Kind::File, path);
  ::unlink(probe.path().c_str());
}

OutputFile::OutputFile(const std::string &path, const std::string &shown)
    : path(path), shown(shown.empty() ? path : shown),
      descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                        0666)) {
  if (descriptor < 0)
    cannotWrite(this->shown);
  if (::isatty(descriptor)) // /dev/stdout, say
    abandonProgress();
}

OutputFile::~OutputFile() {
  if (descriptor >= 0)
    ::close(descriptor);
}

void OutputFile::write(const void *data, int64_t bytes) {
  auto *next = static_cast<const char *>(data);
  while (bytes > 0) {
    // Linux writes at most 2 GiB at a time.
    const auto part =
        static_cast<size_t>(std::min<int64_t>(bytes, int64_t(1) << 30));
    const ssize_t done = ::write(descriptor, next, part);
    if (done < 0 && errno == EINTR)
      continue;
    if (done < 0)
      cannotWrite(shown);
    next += done, bytes -= done, written += done;
  }
}

void OutputFile::writeAt(int64_t offset, const void *data, int64_t bytes) {
  auto *next = static_cast<const char *>(data);
  while (bytes > 0) {
    const auto part =
        static_cast<size_t>(std::min<int64_t>(bytes, int64_t(1) << 30));
    const ssize_t done = ::pwrite(descriptor, next, part, offset);
    if (done < 0 && errno == EINTR)
      continue;
    if (done < 0)
      cannotWrite(shown);
    next += done, bytes -= done, offset += done;
  }
}

void OutputFile::padTo(int64_t offset) {
  static constexpr char kZeros[4096] = {};
  while (written < offset)
    write(kZeros, std::min<int64_t>(sizeof kZeros, offset - written));
}

void OutputFile::finish() {
  // Some file systems say only now that there was no room.
  const bool synced = ::fsync(descriptor) == 0 || errno == EINVAL; // a pipe
  const bool closed = ::close(descriptor) == 0;
  descriptor = -1;
  if (!synced || !closed)
    cannotWrite(shown);
}

AtomicFile::AtomicFile(const std::string &path) : path(path) {
  makeFolderOf(path);
  if (!isSpecial(path))
    copy.emplace(path, WorkingCopy::Kind::File);
  content.emplace(copy ? copy->path() : path, path);
}

AtomicFile::~AtomicFile() {
  if (copy && !committed)
    ::unlink(copy->path().c_str());
}

void AtomicFile::commit() {
  content->finish();
  if (!copy)
    return;
  if (::rename(copy->path().c_str(), path.c_str()) != 0)
    cannotWrite(path);
  committed = true;
  syncFolder(folderOf(path));
}

void writeFile(const std::string &path, const std::string &text) {
  AtomicFile file(path);
  file.file().write(text);
  file.commit();
}

void syncFolder(const std::string &path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY);
  if (descriptor < 0)
    cannotWrite(path);
  // Not every file system can; then the rename is as durable as it gets.
  ::fsync(descriptor);
  ::close(descriptor);
}

void expectOther(const std::string &option, const std::string &output,
                 const std::string &input) {
  std::error_code error;
  if (!output.empty() && fs::equivalent(output, input, error))
    throw Failure(Exit::Usage, option + " " + output + ": would overwrite " +
                                   input +
                                   ", which is read; give another name");
}

/// Whether both are one place, also where nothing is there yet.
static bool isSame(const fs::path &a, const fs::path &b) {
  std::error_code error;
  if (fs::equivalent(a, b, error))
    return true;
  const fs::path one = fs::weakly_canonical(fs::absolute(a, error), error);
  return !error && one == fs::weakly_canonical(fs::absolute(b, error), error) &&
         !error;
}

/// Whether `folder` is above `path` as it is written.
static bool isAbove(const fs::path &folder, const fs::path &path) {
  for (fs::path up = path; up.has_relative_path();) {
    up = up.parent_path();
    if (isSame(up, folder))
      return true;
  }
  return false;
}

bool goesWith(const std::string &place, const std::string &input) {
  // A link in a folder goes with it, and so does the file of a link to it.
  std::error_code error;
  const fs::path written = fs::absolute(input, error).lexically_normal();
  const fs::path real = fs::weakly_canonical(written, error);
  fs::path whole = fs::absolute(place, error).lexically_normal();
  if (!whole.has_filename()) // "it.plan/"
    whole = whole.parent_path();
  return isSame(whole, written) || isAbove(whole, written) ||
         (!error && isAbove(whole, real));
}

void expectApart(const std::vector<NamedOutput> &outputs,
                 const std::vector<std::string> &inputs) {
  for (const std::string &input : inputs)
    for (const NamedOutput &output : outputs)
      if (!input.empty())
        expectOther(output.option, output.path, input);
  for (size_t i = 0; i < outputs.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const NamedOutput &a = outputs[j], &b = outputs[i];
      if (!a.path.empty() && !b.path.empty() && isSame(a.path, b.path) &&
          !isSpecial(b.path)) // several may print to /dev/stdout
        throw Failure(Exit::Usage, b.option + " " + b.path + ": " + a.option +
                                       " writes it, too; give another name");
    }
}

} // namespace pipec
