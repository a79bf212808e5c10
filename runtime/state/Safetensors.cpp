//===- Safetensors.cpp - files of named tensors ---------------------------===//
#include "runtime/state/Safetensors.h"
#include "runtime/program/Sha256.h"
#include "support/Failure.h"
#include "support/OutputFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

namespace pipec {

using Json = nlohmann::ordered_json;

namespace {

struct TypeName {
  const char *numpy, *here;
};
constexpr TypeName kTypes[] = {
    {"float32", "F32"},   {"float64", "F64"}, {"float16", "F16"},
    {"bfloat16", "BF16"}, {"int64", "I64"},   {"int32", "I32"},
    {"int16", "I16"},     {"int8", "I8"},     {"uint8", "U8"},
    {"uint16", "U16"},    {"uint32", "U32"},  {"uint64", "U64"},
    {"bool", "BOOL"}};

std::string translated(const std::string &name, bool toNumpy) {
  for (const TypeName &type : kTypes)
    if (name == (toNumpy ? type.here : type.numpy))
      return toNumpy ? type.numpy : type.here;
  return "";
}

[[noreturn]] void bad(const std::string &path, const std::string &what) {
  throw Failure(Exit::BadPlan, path + ": " + what);
}

class Descriptor {
public:
  explicit Descriptor(const std::string &path)
      : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), path(path) {
    if (fd < 0)
      bad(path, std::strerror(errno));
  }
  ~Descriptor() { ::close(fd); }
  Descriptor(const Descriptor &) = delete;

  int64_t size() const {
    struct stat info{};
    return ::fstat(fd, &info) == 0 ? info.st_size : 0;
  }
  void read(void *to, int64_t bytes, int64_t offset) const {
    auto *next = static_cast<char *>(to);
    while (bytes > 0) {
      const ssize_t got = ::pread(fd, next, static_cast<size_t>(bytes), offset);
      if (got < 0 && errno == EINTR)
        continue;
      if (got <= 0)
        bad(path, got ? std::strerror(errno) : "is truncated");
      next += got, offset += got, bytes -= got;
    }
  }

private:
  int fd;
  const std::string &path;
};

} // namespace

ShardSeal writeSafetensors(const std::string &path, const std::string &shown,
                           Device &device, const std::vector<Tensor> &tensors,
                           const std::map<std::string, std::string> &metadata) {
  Json header = Json::object();
  header["__metadata__"] = metadata;
  int64_t end = 0;
  for (const Tensor &tensor : tensors) {
    header[tensor.name] = {{"dtype", translated(tensor.dtype, false)},
                           {"shape", tensor.shape},
                           {"data_offsets", {end, end + tensor.bytes}}};
    end += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  OutputFile file(path, shown);
  Sha256 digest;
  auto put = [&](const void *data, int64_t bytes) {
    digest.add(data, static_cast<size_t>(bytes));
    file.write(data, bytes);
  };
  put(&length, sizeof length);
  put(text.data(), static_cast<int64_t>(text.size()));
  for (const Tensor &tensor : tensors)
    device.read(tensor.data, tensor.bytes, put);
  ShardSeal seal{file.bytes(), digest.hex()};
  file.finish();
  return seal;
}

Safetensors::Safetensors(const std::string &path) : path(path) {
  const Descriptor file(path);
  const int64_t size = file.size();
  uint64_t length = 0;
  if (size < 8)
    bad(path, "is truncated");
  file.read(&length, sizeof length, 0);
  if (length > static_cast<uint64_t>(size - 8) || length > (1u << 30))
    bad(path, "is truncated or not a safetensors file");
  std::string text(length, '\0');
  file.read(text.data(), static_cast<int64_t>(length), 8);
  const int64_t data = 8 + static_cast<int64_t>(length);
  try {
    const Json header = Json::parse(text);
    for (auto item = header.begin(); item != header.end(); ++item) {
      if (item.key() == "__metadata__") {
        metadata = item->get<std::map<std::string, std::string>>();
        continue;
      }
      const auto offsets =
          item->at("data_offsets").get<std::pair<int64_t, int64_t>>();
      Entry entry;
      entry.dtype = translated(item->at("dtype").get<std::string>(), true);
      entry.shape = item->at("shape").get<std::vector<int64_t>>();
      entry.offset = data + offsets.first;
      entry.bytes = offsets.second - offsets.first;
      if (offsets.first < 0 || entry.bytes < 0 || offsets.second > size - data)
        bad(path,
            "is truncated: tensor '" + item.key() + "' lies beyond its end");
      entries[item.key()] = entry;
    }
  } catch (const Json::exception &) {
    bad(path, "is damaged, or no safetensors file: its header does not say "
              "what is in it");
  }
}

void Safetensors::read(const Entry &entry, Device &device, char *to) const {
  const Descriptor file(path);
  device.write(to, entry.bytes,
               [&](char *piece, int64_t offset, int64_t count) {
                 file.read(piece, count, entry.offset + offset);
               });
}

} // namespace pipec
