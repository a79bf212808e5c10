//===- OutputFile.cpp - files that appear whole or not at all -------------===//
#include "support/OutputFile.h"
#include "support/Failure.h"

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
  makeFolderOf(path);
  struct stat info{};
  const bool there = ::stat(path.c_str(), &info) == 0;
  if (there && S_ISDIR(info.st_mode))
    cannotWrite(path, EISDIR);
  const bool special = there && !S_ISREG(info.st_mode);
  const std::string place = special ? path : folderOf(path);
  if (::access(place.c_str(), W_OK) != 0)
    cannotWrite(path);
}

OutputFile::OutputFile(const std::string &path, const std::string &shown)
    : path(path), shown(shown.empty() ? path : shown),
      descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                        0666)) {
  if (descriptor < 0)
    cannotWrite(this->shown);
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
  if (!output.empty() && std::filesystem::equivalent(output, input, error))
    throw Failure(Exit::Usage, option + " " + output + ": would overwrite " +
                                   input +
                                   ", which is read; give another name");
}

} // namespace pipec
