//===- Transports.cpp - the table of transports ---------------------------===//
#include "runtime/transport/Transport.h"
#include "support/Failure.h"

namespace pipec {

#define TRANSPORT(name, open, joined, launch, summary)                         \
  std::vector<std::unique_ptr<Transport>> open(int ranks);                     \
  bool joined();                                                               \
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
    names += ", " + row.name;
  }
  throw Failure(Exit::Usage,
                "--transport " + name + ": this build has auto" + names);
}

} // namespace pipec
