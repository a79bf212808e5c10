//===- Printable.cpp - a text that a terminal only shows ------------------===//
#include "support/Printable.h"

namespace pipec {

std::string printable(const std::string &text) {
  static const char *const digits = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f)
      out += c;
    else
      (out += "\\x") += {digits[byte >> 4], digits[byte & 15]};
  }
  return out;
}

} // namespace pipec
