//===- Files.cpp - mapped files, and which ones a model may name ----------===//
#include "compiler/onnx/Files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace pipec::onnx {

std::shared_ptr<const MappedFile>
MappedFile::open(const std::string &path, std::string &why, Reads reads) {
  // Non-blocking: opening a FIFO must not wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    why = std::strerror(errno);
    return nullptr;
  }
  struct stat info{};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    why = S_ISDIR(info.st_mode) ? "it is a folder" : "it is no regular file";
    ::close(fd);
    return nullptr;
  }
  const auto size = static_cast<size_t>(info.st_size);
  void *data = nullptr;
  if (size > 0)
    data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (data == MAP_FAILED) {
    why = std::strerror(error);
    return nullptr;
  }
  if (size > 0 && reads == Reads::Parts)
    madvise(data, size, MADV_RANDOM);
  return std::shared_ptr<const MappedFile>(
      new MappedFile(static_cast<const char *>(data), size));
}

MappedFile::~MappedFile() {
  if (size > 0)
    munmap(const_cast<char *>(data), size);
}

void readAhead(std::string_view mapped) {
  // Of a longer piece the system reads as much as of a disk at a time, and no
  // more.
  constexpr size_t kPiece = 128 << 10;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(mapped.data());
  const uintptr_t end = begin + mapped.size();
  for (uintptr_t at = begin / page * page; at < end; at += kPiece)
    madvise(reinterpret_cast<void *>(at), std::min<size_t>(kPiece, end - at),
            MADV_WILLNEED);
}

std::string externalPath(const std::string &folder, const std::string &name,
                         std::string &why) {
  const fs::path relative(name);
  if (name.empty() || name.find('\0') != std::string::npos) {
    why = "its external data has no file name";
    return "";
  }
  if (relative.is_absolute()) {
    why = "its external data has the absolute path '" + name + "'";
    return "";
  }
  if (std::find(relative.begin(), relative.end(), "..") != relative.end()) {
    why = "its external data '" + name + "' is outside of the model's folder";
    return "";
  }
  const fs::path base = folder.empty() ? fs::path(".") : fs::path(folder);
  std::error_code error;
  const fs::path inside = fs::canonical(base, error);
  if (error) {
    why = "the folder of the model cannot be read: " + error.message();
    return "";
  }
  const fs::path real = fs::weakly_canonical(base / relative, error);
  if (error) {
    why = "its external data '" + name + "': " + error.message();
    return "";
  }
  const auto [end, rest] =
      std::mismatch(inside.begin(), inside.end(), real.begin(), real.end());
  if (end != inside.end()) {
    why = "its external data '" + name +
          "' is a link that leaves the model's folder";
    return "";
  }
  return real.string();
}

} // namespace pipec::onnx
