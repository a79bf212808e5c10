//===- CallSums.h - what a rank's calls leave in memory ---------*- C++ -*-===//
//
// With PIPEC_CALL_SUMS=FILE a rank writes FILE.rankN: a line of JSON for each
// kernel and library call of its first step, with what has changed in the
// memory of its tensors since the call before, or since its task began. All of
// that memory is copied to the host for each: for small models. Beside the list
// of another device, or of an emulated one, the first call that differs is
// where to look.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace pipec::cuda {

class CallSums {
public:
  /// Device::read.
  using Read = std::function<void(
      const char *from, int64_t bytes,
      const std::function<void(const char *piece, int64_t count)> &use)>;

  /// Null when nobody asks for sums. Failure(CannotWrite).
  static std::unique_ptr<CallSums> asked(int rank);

  /// Memory to look at, from now on or no more.
  void add(char *memory, int64_t bytes);
  void remove(char *memory);

  /// A task begins.
  void begin(const Read &read);
  /// The call `name` was queued, whose result is of `dtype` (PIPEC_F32 ...).
  void after(const std::string &name, int32_t dtype, const Read &read);

private:
  CallSums(const std::string &file, int rank);

  const int rank;
  int64_t number = 0;
  std::ofstream out;
  /// What the memory held the last time.
  std::map<char *, std::vector<char>> known;
};

} // namespace pipec::cuda
