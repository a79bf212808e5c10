//===- ShellWord.cpp - a word as one types it into a shell ----------------===//
#include "support/ShellWord.h"
#include "support/Printable.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace pipec {

std::string shellWord(const std::string &word) {
  constexpr std::string_view kPlain = "_-./=:,@%+";
  const auto isPlain = [&](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return std::isalnum(byte) || byte >= 0x80 ||
           kPlain.find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), isPlain))
    return word;
  // What a terminal would act on is spelled, as bash and zsh read it.
  const auto isControl = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  };
  if (std::any_of(word.begin(), word.end(), isControl)) {
    std::string escaped;
    for (const char c : word)
      escaped +=
          c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    return "$'" + printable(escaped) + "'";
  }
  std::string quoted = "'";
  for (const char c : word)
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

} // namespace pipec
