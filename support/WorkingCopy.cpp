//===- WorkingCopy.cpp - what becomes an output when it is whole ----------===//
#include "support/WorkingCopy.h"
#include "support/OutputFile.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace pipec {

namespace fs = std::filesystem;

namespace {

constexpr size_t kDigits = 8;

std::string markOf(WorkingCopy::Kind kind) {
  return kind == WorkingCopy::Kind::Scratch ? "-" : ".writing-";
}

std::string freshName(const std::string &output, WorkingCopy::Kind kind,
                      const std::string &shown) {
  unsigned char bytes[kDigits / 2] = {};
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    cannotWrite(shown);
  std::string name = output + markOf(kind);
  for (unsigned char byte : bytes)
    name += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  return name;
}

/// Whether `name` is one that freshName makes and begins with `front`.
bool isOf(const std::string &front, const std::string &name) {
  return name.size() == front.size() + kDigits && name.rfind(front, 0) == 0 &&
         name.find_first_not_of("0123456789abcdef", front.size()) == name.npos;
}

/// A lock on what is there, or -1 with the reason in errno: EWOULDBLOCK where
/// somebody has it. Not every file system has locks.
int locked(const std::string &path) {
  struct stat there{};
  if (::lstat(path.c_str(), &there) != 0)
    return -1;
  // Over NFS a file that is locked must be open for writing.
  const int mode = S_ISDIR(there.st_mode) ? O_RDONLY : O_RDWR;
  const int file = ::open(path.c_str(), mode | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0 || ::flock(file, LOCK_EX | LOCK_NB) == 0)
    return file;
  const int why = errno;
  ::close(file);
  errno = why;
  return -1;
}

/// Removes what dead writers of the output have left.
void sweep(const std::string &output, WorkingCopy::Kind kind) {
  const std::string front = fs::path(output).filename().string() + markOf(kind);
  const fs::path folder = folderOf(output);
  std::error_code ignored;
  std::vector<std::string> old;
  // What cannot be looked through is left: a sweep fails no write.
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end;
       at.increment(ignored))
    if (isOf(front, at->path().filename().string()))
      old.push_back(at->path().string());
  for (const std::string &each : old)
    if (const int abandoned = locked(each); abandoned >= 0) {
      fs::remove_all(each, ignored);
      ::close(abandoned);
    }
}

void make(const std::string &path, const std::string &shown,
          WorkingCopy::Kind kind) {
  if (kind != WorkingCopy::Kind::File) {
    const mode_t mode = kind == WorkingCopy::Kind::Scratch ? 0700 : 0777;
    if (::mkdir(path.c_str(), mode) != 0)
      cannotWrite(shown);
    return;
  }
  const int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0)
    cannotWrite(shown);
  ::close(file);
}

/// Whether who sweeps came between the making of a name and its lock.
bool taken(int lock) {
  struct stat mine{};
  return lock < 0 ? errno == EWOULDBLOCK || errno == ENOENT
                  : ::fstat(lock, &mine) == 0 && mine.st_nlink == 0;
}

} // namespace

WorkingCopy::WorkingCopy(const std::string &output, Kind kind,
                         const std::string &given) {
  const std::string &shown = given.empty() ? output : given;
  sweep(output, kind);
  do {
    if (lock >= 0)
      ::close(lock);
    name = freshName(output, kind, shown);
    make(name, shown, kind);
    lock = locked(name);
  } while (taken(lock));
}

WorkingCopy::~WorkingCopy() {
  if (lock >= 0)
    ::close(lock);
}

} // namespace pipec
