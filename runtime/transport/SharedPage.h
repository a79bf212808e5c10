//===- SharedPage.h - memory that processes of a machine share --*- C++ -*-===//
#pragma once

#include <cstddef>
#include <string>

namespace pipec {

/// A little memory of several processes of one user. One makes it, the others
/// open it by its name, then its maker forgets the name. It is in no folder:
/// nothing stays behind, whoever dies.
class SharedPage {
public:
  SharedPage() = default;
  ~SharedPage();
  SharedPage(const SharedPage &) = delete;
  SharedPage &operator=(const SharedPage &) = delete;

  /// Memory of zeros; its name, which is empty where there is no such memory.
  std::string make(size_t bytes);
  void open(const std::string &name, size_t bytes);
  /// The name that make() gave is gone.
  void forget();

  void *memory() const { return start; } ///< null: there is none

private:
  void map(int from, size_t bytes);
  int file = -1; ///< until it is forgotten
  void *start = nullptr;
  size_t size = 0;
};

} // namespace pipec
