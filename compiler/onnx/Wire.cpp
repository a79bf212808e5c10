//===- Wire.cpp - tensors inside the bytes of a model ---------------------===//
#include "compiler/onnx/Wire.h"

namespace pipec::onnx {

namespace {

/// Attribute tensors below this stay in the message.
constexpr int64_t kSmallTensor = 256;

// Field numbers of onnx.proto.
constexpr uint32_t kModelGraph = 7, kGraphNode = 1, kGraphInitializer = 5,
                   kNodeAttribute = 5, kAttributeTensor = 5, kTensorFloats = 4,
                   kTensorDoubles = 10, kTensorRaw = 9;
constexpr uint32_t kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5;

struct Field {
  uint32_t number = 0, wire = 0;
  const char *begin = nullptr; ///< of the tag
  std::string_view payload;    ///< of a length-delimited field
};

/// Reads the fields of one message.
class Cursor {
public:
  Cursor(std::string_view bytes) : at(bytes.data()), end(at + bytes.size()) {}
  bool atEnd() const { return at == end; }
  const char *position() const { return at; }

  bool next(Field &field) {
    field.begin = at;
    uint64_t tag = 0, value = 0;
    if (!varint(tag) || (tag >> 3) == 0 || (tag >> 3) > 0x1fffffff)
      return false;
    field.number = static_cast<uint32_t>(tag >> 3);
    field.wire = static_cast<uint32_t>(tag & 7);
    switch (field.wire) {
    case kVarint:
      return varint(value);
    case kFixed64:
      return skip(8);
    case kFixed32:
      return skip(4);
    case kDelimited:
      if (!varint(value) || value > static_cast<uint64_t>(end - at))
        return false;
      field.payload = {at, static_cast<size_t>(value)};
      return skip(value);
    default: // groups have been gone since proto2 and ONNX never had one
      return false;
    }
  }

private:
  bool skip(uint64_t n) {
    if (n > static_cast<uint64_t>(end - at))
      return false;
    at += n;
    return true;
  }
  bool varint(uint64_t &value) {
    value = 0;
    for (int shift = 0; shift < 64 && at != end; shift += 7) {
      const auto byte = static_cast<unsigned char>(*at++);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80)
        return true;
    }
    return false;
  }
  const char *at, *end;
};

void appendVarint(std::string &out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void appendMessage(std::string &out, uint32_t number,
                   const std::string &message) {
  appendVarint(out, number << 3 | kDelimited);
  appendVarint(out, message.size());
  out += message;
}

class Stripper {
public:
  Stripper(std::string_view file, StrippedModel &out) : file(file), out(out) {}

  bool model() {
    Cursor cursor(file);
    for (Field field; !cursor.atEnd();) {
      if (!cursor.next(field))
        return false;
      if (field.number == kModelGraph && field.wire == kDelimited) {
        std::string message;
        if (!graph(field.payload, message))
          return false;
        appendMessage(out.message, kModelGraph, message);
      } else {
        copy(field, cursor, out.message);
      }
    }
    return true;
  }

private:
  static void copy(const Field &field, const Cursor &cursor, std::string &to) {
    to.append(field.begin, cursor.position());
  }

  bool graph(std::string_view bytes, std::string &to) {
    Cursor cursor(bytes);
    for (Field field; !cursor.atEnd();) {
      if (!cursor.next(field))
        return false;
      const bool nested = field.wire == kDelimited;
      if (nested && field.number == kGraphInitializer) {
        std::string message;
        Span span;
        if (!tensor(field.payload, message, span, 0))
          return false;
        out.initializers.push_back(span);
        appendMessage(to, field.number, message);
      } else if (nested && field.number == kGraphNode) {
        const int index = nodes++;
        std::string message;
        if (static_cast<int64_t>(field.payload.size()) < kSmallTensor)
          copy(field, cursor, to);
        else if (!node(index, field.payload, message))
          return false;
        else
          appendMessage(to, field.number, message);
      } else {
        copy(field, cursor, to);
      }
    }
    return true;
  }

  bool node(int index, std::string_view bytes, std::string &to) {
    Cursor cursor(bytes);
    int attributes = 0;
    for (Field field; !cursor.atEnd();) {
      if (!cursor.next(field))
        return false;
      if (field.number != kNodeAttribute || field.wire != kDelimited) {
        copy(field, cursor, to);
        continue;
      }
      std::string message;
      Span span;
      if (!attribute(field.payload, message, span))
        return false;
      if (span.offset >= 0)
        out.attributeTensors[{index, attributes}] = span;
      ++attributes;
      appendMessage(to, field.number, message);
    }
    return true;
  }

  bool attribute(std::string_view bytes, std::string &to, Span &span) {
    Cursor cursor(bytes);
    int tensors = 0;
    for (Field field; !cursor.atEnd();) {
      if (!cursor.next(field))
        return false;
      std::string message;
      if (field.number != kAttributeTensor || field.wire != kDelimited) {
        copy(field, cursor, to);
        continue;
      }
      // A second one would be merged into the first by protobuf: nobody writes
      // that.
      if (++tensors > 1 || !tensor(field.payload, message, span, kSmallTensor))
        return false;
      appendMessage(to, field.number, message);
    }
    return true;
  }

  /// Copies a TensorProto without its elements where they are one run of bytes
  /// as they would be in memory, of at least `least` bytes.
  bool tensor(std::string_view bytes, std::string &to, Span &span,
              int64_t least) {
    Cursor counter(bytes);
    int raw = 0, packed = 0, other = 0;
    for (Field field; !counter.atEnd();) {
      if (!counter.next(field))
        return false;
      const bool floats =
          field.number == kTensorFloats || field.number == kTensorDoubles;
      raw += field.number == kTensorRaw && field.wire == kDelimited;
      packed += floats && field.wire == kDelimited;
      other += floats && field.wire != kDelimited;
    }
    const bool usePacked = raw == 0 && packed == 1 && other == 0;
    Cursor cursor(bytes);
    for (Field field; !cursor.atEnd();) {
      cursor.next(field);
      const bool isData = field.wire == kDelimited &&
                          (field.number == kTensorRaw ||
                           (usePacked && (field.number == kTensorFloats ||
                                          field.number == kTensorDoubles)));
      if (isData && static_cast<int64_t>(field.payload.size()) >= least) {
        span.offset = field.payload.data() - file.data();
        span.length = static_cast<int64_t>(field.payload.size());
      } else {
        if (isData)
          span = Span();
        copy(field, cursor, to);
      }
    }
    return true;
  }

  std::string_view file;
  StrippedModel &out;
  int nodes = 0;
};

} // namespace

bool stripTensors(std::string_view file, StrippedModel &out, std::string &why) {
  if (Stripper(file, out).model())
    return true;
  why = "the bytes are not an ONNX model: the file is damaged, incomplete or "
        "something else";
  return false;
}

} // namespace pipec::onnx
