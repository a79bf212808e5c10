//===- Transports.cpp - the table of transports ---------------------------===//
#include "runtime/transport/Transport.h"
#include "support/Failure.h"

#include <charconv>
#include <cstdlib>

namespace pipec {

#define TRANSPORT(name, open, joined, launch, summary)                         \
  std::vector<std::unique_ptr<Transport>> open(const Meeting &meeting);        \
  std::optional<int> joined(bool named);                                       \
  std::vector<std::string> launch(int ranks, const LaunchFolders &folders);
#include "runtime/transport/transports.def"

const std::vector<TransportRow> &transports() {
  static const std::vector<TransportRow> rows = {
#define TRANSPORT(name, open, joined, launch, summary)                         \
  {#name, summary, open, joined, launch},
#include "runtime/transport/transports.def"
  };
  return rows;
}

const TransportRow &transportNamed(const std::string &name) {
  std::string names;
  for (const TransportRow &row : transports()) {
    if (row.name == name)
      return row;
    names += " " + row.name;
  }
  throw Failure(Exit::Usage,
                "--transport " + name + ": this build has" + names);
}

std::optional<int> integerVariable(const char *name) {
  const char *text = std::getenv(name);
  if (!text)
    return std::nullopt;
  const std::string word = text;
  int value = -1;
  const auto [end, error] =
      std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < 0)
    throw Failure(Exit::Usage, std::string("the environment variable ") + name +
                                   " is '" + word +
                                   "', not a whole number of 0 or more");
  return value;
}

} // namespace pipec
