//===- Printable.cpp - a text that a terminal only shows ------------------===//
#include "support/Printable.h"

#include "support/Utf8.h"

#include <string_view>

namespace pipec {

/// Bytes of the character that the text begins with; 0 where there is none, or
/// one that controls the terminal.
static size_t shownBytes(std::string_view text) {
  const Utf8Character first = firstCharacter(text);
  const bool controls =
      first.code < 0x20 || (first.code >= 0x7f && first.code < 0xa0);
  return controls ? 0 : first.bytes;
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
