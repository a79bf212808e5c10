//===- OutputFile.h - files that appear whole or not at all -----*- C++ -*-===//
//
// Every output that a user names goes through here, so that there is one rule:
// folders on the way are made, an error names the path that the user gave, the
// system's reason and a remedy, and nothing half-written is left.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "support/WorkingCopy.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pipec {

/// Failure(CannotWrite) that names the path, errno's reason and the remedy.
[[noreturn]] void cannotWrite(const std::string &path);

[[noreturn]] void cannotWrite(const std::string &path, int error);

/// What is there and no file (/dev/stdout, a pipe) is written as it is.
bool isSpecial(const std::string &path);

/// "." for a name alone.
std::string folderOf(const std::string &path);

/// Makes the folders that an output lies in. Failure(CannotWrite).
void makeFolderOf(const std::string &path);

/// Said before a long work: could the output be written? Leaves nothing, also
/// of the folders on the way. Failure(CannotWrite).
void expectWritable(const std::string &path);

/// Throws Failure(Usage) where the file that `option` names, to be written, is
/// the one that is read, under whatever name.
void expectOther(const std::string &option, const std::string &output,
                 const std::string &input);

/// Whether what is replaced, a file or a folder, is the input or holds it, or
/// the path on which it is found.
bool goesWith(const std::string &place, const std::string &input);

/// What an option has written, where that is anything.
struct NamedOutput {
  std::string option, path;
};

/// expectOther of every output and every input, and no file is written twice.
void expectApart(const std::vector<NamedOutput> &outputs,
                 const std::vector<std::string> &inputs);

/// A file written from front to back. Every error is Failure(CannotWrite).
class OutputFile {
public:
  /// Creates the file, or empties it. `shown`: its name in messages, when that
  /// is another.
  explicit OutputFile(const std::string &path, const std::string &shown = "");
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
  const std::string shown;
  int descriptor;
  int64_t written = 0;
};

/// A file that takes its name when it is finished: written beside it as a
/// WorkingCopy, which is removed if it never is. Folders on the way are made.
/// What is there and no file (/dev/stdout, a pipe) is written as it is.
class AtomicFile {
public:
  explicit AtomicFile(const std::string &path);
  ~AtomicFile();
  OutputFile &file() { return *content; }
  void commit();

private:
  std::string path;
  std::optional<WorkingCopy> copy;
  std::optional<OutputFile> content;
  bool committed = false;
};

/// An AtomicFile with this text.
void writeFile(const std::string &path, const std::string &text);

/// Makes a rename or a new file in the folder last.
void syncFolder(const std::string &path);

} // namespace pipec
