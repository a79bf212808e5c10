//===- Utf8.cpp - the characters of a text --------------------------------===//
#include "support/Utf8.h"

#include <bit>

namespace pipec {

Utf8Character firstCharacter(std::string_view text) {
  if (text.empty())
    return {};
  const auto byte = [&](size_t at) {
    return static_cast<unsigned char>(text[at]);
  };
  if (byte(0) < 0x80)
    return {1, byte(0)};
  // 110xxxxx, 1110xxxx or 11110xxx, and as many of 10xxxxxx as make the length.
  const size_t length = std::countl_one(byte(0));
  if (length < 2 || length > 4 || length > text.size())
    return {};
  char32_t code = byte(0) & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80)
      return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool isSurrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[length] || code > 0x10ffff || isSurrogate)
    return {};
  return {length, code};
}

bool isUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = firstCharacter(text).bytes;
    if (bytes == 0)
      return false;
    text.remove_prefix(bytes);
  }
  return true;
}

} // namespace pipec
