//===- Npy.cpp - arrays for --constant ------------------------------------===//
#include "compiler/onnx/Npy.h"
#include "compiler/onnx/Files.h"

#include <cctype>

namespace pipec::onnx {

static ElementType typeOfDescr(const std::string &descr) {
  static const std::map<std::string, ElementType> types = {
      {"<f4", ElementType::Float},   {"<f8", ElementType::Double},
      {"<f2", ElementType::Float16}, {"|b1", ElementType::Bool},
      {"|i1", ElementType::Int8},    {"|u1", ElementType::Uint8},
      {"<i2", ElementType::Int16},   {"<u2", ElementType::Uint16},
      {"<i4", ElementType::Int32},   {"<u4", ElementType::Uint32},
      {"<i8", ElementType::Int64},   {"<u8", ElementType::Uint64}};
  const auto found = types.find(descr);
  return found == types.end() ? ElementType::Undefined : found->second;
}

/// The text after 'key': in the header's dictionary.
static std::string_view valueOf(std::string_view header, const char *key) {
  const size_t at = header.find("'" + std::string(key) + "'");
  if (at == std::string_view::npos)
    return {};
  size_t begin = header.find(':', at);
  if (begin == std::string_view::npos)
    return {};
  ++begin;
  while (begin < header.size() && header[begin] == ' ')
    ++begin;
  return header.substr(begin);
}

/// (2, 3) to {2, 3}. False for anything else.
static bool parseShape(std::string_view text, std::vector<int64_t> &dims) {
  if (text.empty() || text[0] != '(')
    return false;
  int64_t number = -1, elements = 1;
  for (const char c : text.substr(1)) {
    if (std::isdigit(static_cast<unsigned char>(c))) {
      number = (number < 0 ? 0 : number) * 10 + (c - '0');
      if (number > (int64_t(1) << 40))
        return false;
    } else if (c == ',' || c == ')') {
      if (number >= 0)
        dims.push_back(number);
      if (number > 0 && (__builtin_mul_overflow(elements, number, &elements) ||
                         elements > (int64_t(1) << 40)))
        return false;
      number = -1;
      if (c == ')')
        return true;
    } else if (c != ' ') {
      return false;
    }
  }
  return false;
}

/// Column-major to row-major order.
static std::string reorder(std::string_view bytes,
                           const std::vector<int64_t> &dims, int64_t width) {
  std::string out(bytes.size(), '\0');
  std::vector<int64_t> index(dims.size(), 0);
  for (size_t at = 0; at < bytes.size(); at += width) {
    int64_t from = 0;
    for (size_t d = dims.size(); d-- > 0;)
      from = from * dims[d] + index[d];
    out.replace(at, width, bytes.substr(from * width, width));
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d])
        break;
      index[d] = 0;
    }
  }
  return out;
}

TensorData readNpy(const std::string &path) {
  TensorData out;
  const auto file = MappedFile::open(path, out.problem);
  if (!file) {
    out.missingFile = true;
    return out;
  }
  const std::string_view bytes = file->bytes();
  out.problem = "it is no .npy file";
  if (bytes.size() < 12 || bytes.substr(0, 6) != "\x93NUMPY")
    return out;
  const auto byte = [&](size_t i) {
    return static_cast<size_t>(static_cast<unsigned char>(bytes[i]));
  };
  const bool longHeader = byte(6) > 1;
  const size_t start = longHeader ? 12 : 10;
  const size_t length = byte(8) | byte(9) << 8 |
                        (longHeader ? byte(10) << 16 | byte(11) << 24 : 0);
  if (bytes.size() - start < length)
    return out;
  const std::string_view header = bytes.substr(start, length);
  const std::string_view descr = valueOf(header, "descr");
  if (descr.size() < 5 || !parseShape(valueOf(header, "shape"), out.dims))
    return out;
  const std::string_view quoted = descr.substr(1);
  const std::string type(quoted.substr(0, quoted.find(descr[0])));
  out.type = typeOfDescr(type);
  if (out.type == ElementType::Undefined) {
    out.problem = type == "|O"
                      ? "it holds Python objects (dtype object), not numbers"
                      : "its element type '" + type + "' is not supported";
    return out;
  }
  const int64_t need = out.elements() * byteWidth(out.type);
  const std::string_view data = bytes.substr(start + length);
  if (static_cast<int64_t>(data.size()) < need) {
    out.problem =
        "it ends before its " + std::to_string(need) + " bytes of data";
    return out;
  }
  const bool fortran = valueOf(header, "fortran_order").substr(0, 4) == "True";
  const std::string_view elements = data.substr(0, need);
  out.bytes = fortran ? reorder(elements, out.dims, byteWidth(out.type))
                      : std::string(elements);
  out.length = need;
  out.problem.clear();
  return out;
}

} // namespace pipec::onnx
