//===- WireFormat.h - protobuf messages as bytes ----------------*- C++ -*-===//
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace pipec::wire {

struct Bytes {
  const char *begin = nullptr, *end = nullptr;
  int64_t size() const { return end - begin; }
  std::string text() const { return {begin, end}; }
};

/// A field of a message.
struct Field {
  uint32_t number = 0;
  int type = 0;       ///< 0 varint, 1 eight bytes, 2 length-delimited, 5 four
  uint64_t value = 0; ///< of a varint
  Bytes payload;      ///< of a length-delimited field
  Bytes whole;        ///< with its tag
  bool isMessage() const { return type == 2; }
};

/// Calls use(field) for every field in order. Failure(BadModel) that names
/// `file` when the message is malformed.
void forEach(Bytes message, const std::string &file,
             const std::function<void(const Field &)> &use);

/// The values of a repeated integer field, packed or not.
void forEachVarint(const Field &field, const std::string &file,
                   const std::function<void(uint64_t)> &use);

void putVarint(std::string &out, uint64_t value);
void putTag(std::string &out, uint32_t number, int type);
void putBytes(std::string &out, uint32_t number, const std::string &value);

/// A file, memory-mapped for reading. Failure(NoInput, BadModel).
class MappedFile {
public:
  explicit MappedFile(const std::string &path);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;
  Bytes bytes() const { return content; }

private:
  Bytes content;
};

/// The path of an external data file: below the model's folder, also after
/// following links. Failure(BadModel) otherwise; `tensor` names who asks.
std::string besideModel(const std::string &model, const std::string &location,
                        const std::string &tensor);

} // namespace pipec::wire
