//===- Utf8.h - the characters of a text ------------------------*- C++ -*-===//
#pragma once

#include <cstddef>
#include <string_view>

namespace pipec {

/// A character at the beginning of a text.
struct Utf8Character {
  size_t bytes = 0; ///< 0 where the text is empty or begins with no UTF-8
  char32_t code = 0;
};

/// RFC 3629: of each character the shortest form alone, no surrogates, nothing
/// above U+10FFFF.
Utf8Character firstCharacter(std::string_view text);

bool isUtf8(std::string_view text);

} // namespace pipec
