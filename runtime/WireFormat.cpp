//===- WireFormat.cpp - protobuf messages as bytes ------------------------===//
#include "runtime/WireFormat.h"
#include "support/Failure.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pipec::wire {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void malformed(const std::string &file) {
  throw Failure(Exit::BadModel, file + ": is not an ONNX model (malformed "
                                       "protobuf)");
}

uint64_t varint(const char *&at, const char *end, const std::string &file) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at == end)
      malformed(file);
    const auto byte = static_cast<unsigned char>(*at++);
    value |= uint64_t(byte & 0x7f) << shift;
    if (!(byte & 0x80))
      return value;
  }
  malformed(file);
}

} // namespace

void forEach(Bytes message, const std::string &file,
             const std::function<void(const Field &)> &use) {
  for (const char *at = message.begin; at != message.end;) {
    Field field;
    field.whole.begin = at;
    const uint64_t tag = varint(at, message.end, file);
    field.number = static_cast<uint32_t>(tag >> 3);
    field.type = static_cast<int>(tag & 7);
    uint64_t length = 0;
    if (field.type == 0)
      field.value = varint(at, message.end, file);
    else if (field.type == 1)
      length = 8;
    else if (field.type == 2)
      length = varint(at, message.end, file);
    else if (field.type == 5)
      length = 4;
    else
      malformed(file);
    if (field.number == 0 || length > static_cast<uint64_t>(message.end - at))
      malformed(file);
    field.payload = {at, at + length};
    at += length;
    field.whole.end = at;
    use(field);
  }
}

void forEachVarint(const Field &field, const std::string &file,
                   const std::function<void(uint64_t)> &use) {
  if (field.type == 0)
    return use(field.value);
  if (field.type != 2)
    malformed(file);
  for (const char *at = field.payload.begin; at != field.payload.end;)
    use(varint(at, field.payload.end, file));
}

void putVarint(std::string &out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void putTag(std::string &out, uint32_t number, int type) {
  putVarint(out, uint64_t(number) << 3 | static_cast<uint64_t>(type));
}

void putBytes(std::string &out, uint32_t number, const std::string &value) {
  putTag(out, number, 2);
  putVarint(out, value.size());
  out += value;
}

MappedFile::MappedFile(const std::string &path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info{};
  if (fd < 0 || ::fstat(fd, &info) != 0) {
    const int error = errno;
    if (fd >= 0)
      ::close(fd);
    throw Failure(Exit::NoInput, path + ": " + std::strerror(error));
  }
  const auto size = static_cast<size_t>(info.st_size);
  void *mapped = MAP_FAILED;
  if (S_ISREG(info.st_mode) && size > 0)
    mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (mapped == MAP_FAILED)
    throw Failure(Exit::BadModel, path + ": is empty or not a regular file");
  content.begin = static_cast<const char *>(mapped);
  content.end = content.begin + size;
}

MappedFile::~MappedFile() {
  ::munmap(const_cast<char *>(content.begin),
           static_cast<size_t>(content.size()));
}

std::string besideModel(const std::string &model, const std::string &location,
                        const std::string &tensor) {
  auto refuse = [&](const std::string &why) {
    throw Failure(Exit::BadModel, model + ": the data of '" + tensor +
                                      "' is in '" + location + "', " + why);
  };
  const fs::path relative(location);
  if (location.empty() || relative.is_absolute())
    refuse("which is not a relative path");
  for (const fs::path &part : relative)
    if (part == "..")
      refuse("which leaves the model's folder");
  std::error_code error;
  fs::path folder = fs::path(model).parent_path();
  folder = fs::canonical(folder.empty() ? "." : folder, error);
  const fs::path file = fs::canonical(folder / relative, error);
  if (error)
    throw Failure(Exit::NoInput, (folder / relative).string() + ": " +
                                     error.message() + "; the data of '" +
                                     tensor + "' should be there");
  const std::string inside = folder.string() + "/";
  if (file.string().rfind(inside, 0) != 0)
    refuse("a link that leaves the model's folder");
  return file.string();
}

} // namespace pipec::wire
