//===- OutputFile.h - files that appear whole or not at all -----*- C++ -*-===//
#pragma once

#include <cstdint>
#include <string>

namespace pipec {

/// Failure(CannotWrite) that names the path and errno's reason.
[[noreturn]] void cannotWrite(const std::string &path);

/// A file written from front to back. Every error is Failure(CannotWrite).
class OutputFile {
public:
  /// Creates the file, or empties it.
  explicit OutputFile(const std::string &path);
  ~OutputFile();
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  void write(const void *data, int64_t bytes);
  void write(const std::string &text) {
    write(text.data(), static_cast<int64_t>(text.size()));
  }
  /// At `offset`, wherever the end is: files that fill up in any order.
  void writeAt(int64_t offset, const void *data, int64_t bytes);
  /// Zeros up to `offset`.
  void padTo(int64_t offset);
  int64_t bytes() const { return written; }
  /// On the disk, for good.
  void finish();

  const std::string path;

private:
  int descriptor;
  int64_t written = 0;
};

/// A file that takes its name when it is finished: written beside it under a
/// temporary one, which is removed if it never is.
class AtomicFile {
public:
  explicit AtomicFile(const std::string &path);
  ~AtomicFile();
  OutputFile &file() { return temporary; }
  void commit();

private:
  std::string path;
  OutputFile temporary;
  bool committed = false;
};

/// Makes a rename or a new file in the folder last.
void syncFolder(const std::string &path);

} // namespace pipec
