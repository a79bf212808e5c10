//===- NpyFile.cpp - a .npy file that fills up in any order ---------------===//
#include "runtime/data/NpyFile.h"
#include "support/Failure.h"

namespace pipec {
namespace {

/// numpy's code of an element type.
std::string codeOf(const std::string &path, const std::string &dtype) {
  static constexpr const char *kCodes[][2] = {
      {"bool", "|b1"},  {"int8", "|i1"},   {"uint8", "|u1"},
      {"int16", "<i2"}, {"uint16", "<u2"}, {"float16", "<f2"},
      {"int32", "<i4"}, {"uint32", "<u4"}, {"float32", "<f4"},
      {"int64", "<i8"}, {"uint64", "<u8"}, {"float64", "<f8"}};
  for (auto &[name, code] : kCodes)
    if (dtype == name)
      return code;
  throw Failure(Exit::BadModel, path + ": the output is " + dtype +
                                    ", which .npy files have no name for; cast "
                                    "it to float32 in the model");
}

} // namespace

NpyFile::NpyFile(const std::string &path, const std::string &dtype,
                 const std::vector<int64_t> &shape)
    : file(path) {
  std::string tuple;
  for (int64_t dim : shape)
    tuple += std::to_string(dim) + ", "; // Python: (3, ) has one element
  std::string header = "{'descr': '" + codeOf(path, dtype) +
                       "', 'fortran_order': False, 'shape': (" + tuple + "), }";
  constexpr size_t kPreamble = 10; // magic, version, length
  const size_t total = (kPreamble + header.size() + 1 + 63) / 64 * 64;
  header.resize(total - kPreamble - 1, ' ');
  header += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += '\x01';
  bytes += '\0';
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  file.file().write(bytes + header);
  start = file.file().bytes();
}

void NpyFile::write(int64_t offset, const void *data, int64_t bytes) {
  file.file().writeAt(start + offset, data, bytes);
}

} // namespace pipec
