//===- CallTimes.h - how long a rank's calls take ---------------*- C++ -*-===//
//
// With PIPEC_CALL_TIMES=FOLDER a rank writes FOLDER/rank-N.tsv: of each kernel
// and library call how often it was queued and how long it took, between two
// events on the stream. Only of calls that are queued one by one: --graphs off.
// The first step, in which code is loaded and algorithms are looked for, counts
// only where there is no other.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/device/cuda/Driver.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace pipec::cuda {

class CallTimes {
public:
  /// Null when nobody asks for times.
  static std::unique_ptr<CallTimes> asked(int rank, Stream stream);
  ~CallTimes();

  void before();
  /// `what` was queued since before().
  void after(const std::string &what);
  /// Nothing was queued since before().
  void forget() { --used; }
  /// All that was queued has been done.
  void settle();

private:
  CallTimes(std::string file, Stream stream)
      : cuda(Driver::get()), stream(stream), file(std::move(file)) {}
  Event next();

  struct Sum {
    int64_t calls = 0;
    double milliseconds = 0;
  };
  const Driver &cuda;
  const Stream stream;
  const std::string file;
  std::vector<Event> events; ///< two of each call
  size_t used = 0;
  std::vector<std::string> queued;
  std::map<std::string, Sum> sums;
  int settled = 0; ///< steps that were queued call by call
};

} // namespace pipec::cuda
