//===- Links.cpp - the table of links between GPUs ------------------------===//
#include "runtime/device/cuda/Links.h"

namespace pipec {

#define LINKS(name, open)                                                      \
  std::vector<std::unique_ptr<Links>> open(const LinksRequest &request);
#include "runtime/device/cuda/links.def"

const LinksRow &linksNamed(const std::string &name) {
  static const LinksRow rows[] = {
#define LINKS(name, open) {#name, open},
#include "runtime/device/cuda/links.def"
  };
  for (const LinksRow &row : rows)
    if (name == row.name)
      return row;
  throw Failure(Exit::Internal, "there are no links called " + name);
}

} // namespace pipec
