//===- Npy.cpp - a .npy file, memory-mapped -------------------------------===//
#include "runtime/data/Npy.h"
#include "support/Failure.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pipec {
namespace {

[[noreturn]] void bad(const std::string &path, const std::string &what) {
  throw Failure(Exit::BadModel, path + ": " + what);
}

/// The text after `'key':` in the header's Python dictionary.
std::string valueOf(const std::string &path, const std::string &header,
                    const std::string &key) {
  size_t at = header.find("'" + key + "'");
  if (at == std::string::npos)
    at = header.find("\"" + key + "\"");
  if (at != std::string::npos)
    at = header.find(':', at);
  if (at == std::string::npos)
    bad(path, "not a .npy file: its header has no " + key);
  at = header.find_first_not_of(" \t", at + 1);
  return at == std::string::npos ? "" : header.substr(at);
}

struct TypeCode {
  const char *code, *name;
  int bytes;
};
constexpr TypeCode kTypes[] = {
    {"b1", "bool", 1},  {"i1", "int8", 1},   {"u1", "uint8", 1},
    {"i2", "int16", 2}, {"u2", "uint16", 2}, {"f2", "float16", 2},
    {"i4", "int32", 4}, {"u4", "uint32", 4}, {"f4", "float32", 4},
    {"i8", "int64", 8}, {"u8", "uint64", 8}, {"f8", "float64", 8}};

/// "<i8" of "int64"; a type that numpy lacks keeps its name.
std::string littleEndian(const std::string &name) {
  for (const TypeCode &type : kTypes)
    if (name == type.name)
      return (type.bytes > 1 ? "<" : "|") + std::string(type.code);
  return name;
}

} // namespace

Npy::Npy(const std::string &path, const std::string &wanted) : path(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info{};
  if (fd < 0 || ::fstat(fd, &info) != 0) {
    const int error = errno;
    if (fd >= 0)
      ::close(fd);
    throw Failure(Exit::NoInput, "cannot read the array " + path + ": " +
                                     std::strerror(error) +
                                     "; check the path and its permissions");
  }
  size = info.st_size;
  void *mapped = S_ISREG(info.st_mode) && size > 0
                     ? ::mmap(nullptr, static_cast<size_t>(size), PROT_READ,
                              MAP_PRIVATE, fd, 0)
                     : MAP_FAILED;
  ::close(fd);
  if (mapped == MAP_FAILED)
    bad(path, size ? "is not a regular file" : "is empty, not a .npy file");
  mapping = static_cast<const char *>(mapped);
  try {
    if (size >= 4 && std::memcmp(mapping, "PK\x03\x04", 4) == 0)
      bad(path, "is an archive (.npz), not a .npy file; write each of its "
                "arrays with numpy.save");
    if (size < 10 || std::memcmp(mapping, "\x93NUMPY", 6) != 0)
      bad(path, "not a .npy file; write it with numpy.save");
    auto byte = [&](int i) {
      return static_cast<int64_t>(static_cast<unsigned char>(mapping[i]));
    };
    const int64_t major = byte(6);
    if (major < 1 || major > 3 || (major > 1 && size < 12))
      bad(path, ".npy format " + std::to_string(major) + " is unknown");
    int64_t length = byte(8) | byte(9) << 8;
    if (major > 1)
      length |= byte(10) << 16 | byte(11) << 24;
    start = (major > 1 ? 12 : 10) + length;
    if (start > size)
      bad(path, "is truncated in its header");
    parse(std::string(mapping + start - length, static_cast<size_t>(length)),
          wanted);
  } catch (...) {
    ::munmap(mapped, static_cast<size_t>(size));
    throw;
  }
}

Npy::~Npy() {
  ::munmap(const_cast<char *>(mapping), static_cast<size_t>(size));
}

void Npy::parse(const std::string &header, const std::string &wanted) {
  const std::string descr = valueOf(path, header, "descr");
  if (descr.size() < 5 || (descr[0] != '\'' && descr[0] != '"'))
    bad(path, "arrays of records are not supported");
  const std::string type = descr.substr(1, descr.find(descr[0], 1) - 1);
  if (type == "|O")
    bad(path, "holds Python objects (dtype object: rows of different lengths, "
              "say), not numbers; make one array of numbers of them, as "
              "numpy.stack(rows).astype(\"" +
                  wanted + "\")");
  const std::string code = descr.substr(2, 2);
  for (const TypeCode &type : kTypes)
    if (code == type.code && descr[4] == descr[0])
      dtype = type.name, itemBytes = type.bytes;
  if (dtype.empty() || (descr[1] == '>' && itemBytes > 1))
    bad(path, "element type '" + type +
                  "' is not supported; save it as little-endian numbers, as "
                  "array.astype(\"" +
                  littleEndian(wanted) + "\")");
  if (valueOf(path, header, "fortran_order").rfind("False", 0) != 0)
    bad(path, "is in Fortran order; save numpy.ascontiguousarray(array)");
  const std::string tuple = valueOf(path, header, "shape");
  const size_t end = tuple.find(')');
  if (tuple.empty() || tuple[0] != '(' || end == std::string::npos)
    bad(path, "has no shape in its header");
  int64_t bytes = itemBytes;
  for (size_t at = 1; at < end;) {
    if (tuple[at] == ' ' || tuple[at] == ',') {
      ++at;
      continue;
    }
    int64_t dim = 0;
    const size_t begin = at;
    for (; at < end && tuple[at] >= '0' && tuple[at] <= '9'; ++at)
      dim = at - begin < 18 ? dim * 10 + (tuple[at] - '0') : INT64_MAX;
    if (at == begin)
      bad(path, "has no readable shape in its header");
    if (dim && bytes > size / dim)
      bad(path,
          "is shorter than its shape says: it is truncated, copy it again");
    shape.push_back(dim);
    bytes *= dim;
  }
  if (bytes > size - start)
    bad(path, "is shorter than its shape says: it is truncated, copy it again");
}

} // namespace pipec
