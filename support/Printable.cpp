//===- Printable.cpp - a text that a terminal only shows ------------------===//
#include "support/Printable.h"

#include <cstdint>
#include <string_view>

namespace pipec {

/// Bytes of the UTF-8 character that the text begins with; 0 where there is
/// none, or one that controls the terminal.
static size_t shownBytes(std::string_view text) {
  const auto byte = [&](size_t at) {
    return static_cast<unsigned char>(text[at]);
  };
  const unsigned first = byte(0);
  if (first < 0x80)
    return first >= 0x20 && first != 0x7f;
  const size_t length = first < 0xc0   ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf8 ? 4
                                       : 0;
  if (length == 0 || length > text.size())
    return 0;
  uint32_t code = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80)
      return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0xa0, 0x800, 0x10000};
  const bool isHalf = code >= 0xd800 && code < 0xe000; // of a pair of UTF-16
  return code >= kLeast[length] && code <= 0x10ffff && !isHalf ? length : 0;
}

std::string printable(const std::string &text) {
  static const char *const digits = "0123456789abcdef";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (const size_t shown = shownBytes(std::string_view(text).substr(at))) {
      out.append(text, at, shown);
      at += shown;
      continue;
    }
    const auto byte = static_cast<unsigned char>(text[at++]);
    (out += "\\x") += {digits[byte >> 4], digits[byte & 15]};
  }
  return out;
}

} // namespace pipec
