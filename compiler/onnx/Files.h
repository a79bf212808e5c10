//===- Files.h - mapped files, and which ones a model may name --*- C++ -*-===//

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace pipec::onnx {

/// What of a mapped file will be read.
enum class Reads { Whole, Parts };

/// A file mapped for reading.
class MappedFile {
public:
  /// Null, with a sentence in `why`, for what is no readable regular file.
  /// With Reads::Parts nothing is read ahead of what is looked at: of weights
  /// of many gigabytes a few elements each. What is read through says so, by
  /// readAhead.
  static std::shared_ptr<const MappedFile>
  open(const std::string &path, std::string &why, Reads reads = Reads::Whole);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;
  std::string_view bytes() const { return {data, size}; }

private:
  MappedFile(const char *data, size_t size) : data(data), size(size) {}
  const char *data;
  size_t size;
};

/// Has the system read bytes of a mapped file that will be read through.
void readAhead(std::string_view mapped);

/// The path of an external data file that a model in `folder` names. Refuses,
/// with a sentence in `why` and an empty result, absolute names, "..", and
/// links that leave the folder. A file that is not there is not refused here.
std::string externalPath(const std::string &folder, const std::string &name,
                         std::string &why);

} // namespace pipec::onnx
