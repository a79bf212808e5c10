//===- OutputFile.cpp - files that appear whole or not at all -------------===//
#include "runtime/state/OutputFile.h"
#include "support/Failure.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace pipec {

void cannotWrite(const std::string &path) {
  throw Failure(Exit::CannotWrite, path + ": " + std::strerror(errno));
}

OutputFile::OutputFile(const std::string &path)
    : path(path),
      descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                        0666)) {
  if (descriptor < 0)
    cannotWrite(path);
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
      cannotWrite(path);
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
      cannotWrite(path);
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
  const bool synced = ::fsync(descriptor) == 0;
  const bool closed = ::close(descriptor) == 0;
  descriptor = -1;
  if (!synced || !closed)
    cannotWrite(path);
}

AtomicFile::AtomicFile(const std::string &path)
    : path(path), temporary(path + ".writing") {}

AtomicFile::~AtomicFile() {
  if (!committed)
    ::unlink(temporary.path.c_str());
}

void AtomicFile::commit() {
  temporary.finish();
  if (::rename(temporary.path.c_str(), path.c_str()) != 0)
    cannotWrite(path);
  committed = true;
  const size_t slash = path.rfind('/');
  syncFolder(slash == std::string::npos ? "." : path.substr(0, slash + 1));
}

void syncFolder(const std::string &path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY);
  if (descriptor < 0)
    cannotWrite(path);
  // Not every file system can; then the rename is as durable as it gets.
  ::fsync(descriptor);
  ::close(descriptor);
}

} // namespace pipec
