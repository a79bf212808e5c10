//===- ErrorText.cpp - how a program says what stopped it -----------------===//
#include "support/ErrorText.h"

#include "support/Diagnostics.h"
#include "support/Printable.h"

#include <string_view>

namespace pipec {

bool asksForJson(int argc, char **argv) {
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--")
      break;
    if (word.starts_with("--format="))
      json = word == "--format=json";
    else if (word == "--format" && i + 1 < argc)
      json = std::string_view(argv[++i]) == "json";
  }
  return json;
}

std::string errorText(const std::string &program, const Failure &failure,
                      const std::string &input, bool json,
                      const std::vector<std::string> &notes) {
  if (!json)
    return program + ": error: " + printable(failure.what()) + "\n";
  Diagnostics diagnostics;
  for (const std::string &note : notes)
    diagnostics.note(note);
  diagnostics.add(failure);
  return diagnostics.json(input);
}

} // namespace pipec
