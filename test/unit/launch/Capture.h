//===- Capture.h - call a command as main would -----------------*- C++ -*-===//
#pragma once

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace pipec {

/// Words as argc and argv.
class Arguments {
public:
  explicit Arguments(std::vector<std::string> given) : words(std::move(given)) {
    for (std::string &word : words)
      pointers.push_back(word.data());
  }
  int count() const { return static_cast<int>(pointers.size()); }
  char **values() { return pointers.data(); }

private:
  std::vector<std::string> words;
  std::vector<char *> pointers;
};

/// What `call` printed to std::cout.
template <class Call> std::string printed(Call call) {
  std::ostringstream text;
  std::streambuf *old = std::cout.rdbuf(text.rdbuf());
  try {
    call();
  } catch (...) {
    std::cout.rdbuf(old);
    throw;
  }
  std::cout.rdbuf(old);
  return text.str();
}

} // namespace pipec
