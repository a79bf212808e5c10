//===- ReadFile.cpp - small files that users name ------------------------===//
#include "support/ReadFile.h"
#include "support/Failure.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace pipec {

std::string readFile(const std::string &path, const std::string &what,
                     const std::string &remedy) {
  const auto fail = [&] {
    return Failure(Exit::NoInput, "cannot read " + what + " " + path + ": " +
                                      std::strerror(errno) + "; " + remedy);
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(
      std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file)
    throw fail();
  std::string text;
  char part[1 << 16];
  while (const size_t n = std::fread(part, 1, sizeof part, file.get()))
    text.append(part, n);
  if (std::ferror(file.get())) // a directory opens, but cannot be read
    throw fail();
  return text;
}

} // namespace pipec
