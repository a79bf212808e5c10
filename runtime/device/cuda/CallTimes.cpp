//===- CallTimes.cpp - how long a rank's calls take -----------------------===//
#include "runtime/device/cuda/CallTimes.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace pipec::cuda {

std::unique_ptr<CallTimes> CallTimes::asked(int rank, Stream stream) {
  const char *folder = std::getenv("PIPEC_CALL_TIMES");
  if (!folder)
    return nullptr;
  return std::unique_ptr<CallTimes>(new CallTimes(
      std::string(folder) + "/rank-" + std::to_string(rank) + ".tsv", stream));
}

Event CallTimes::next() {
  if (used == events.size())
    cuda.check(cuda.createEvent(&events.emplace_back(), 0), "cuEventCreate");
  return events[used++];
}

void CallTimes::before() {
  cuda.check(cuda.recordEvent(next(), stream, 0), "cuEventRecord");
}

void CallTimes::after(const std::string &what) {
  before();
  queued.push_back(what);
}

void CallTimes::settle() {
  if (!queued.empty() && settled++ == 1)
    sums.clear();
  for (size_t i = 0; i < queued.size(); ++i) {
    float milliseconds = 0;
    cuda.check(cuda.elapsed(&milliseconds, events[2 * i], events[2 * i + 1]),
               "cuEventElapsedTime");
    Sum &sum = sums[queued[i]];
    ++sum.calls;
    sum.milliseconds += milliseconds;
  }
  queued.clear();
  used = 0;
}

/// The longest first. Times are an aid: a file that cannot be written ends
/// nothing.
CallTimes::~CallTimes() {
  for (Event event : events)
    cuda.destroyEvent(event);
  std::vector<std::pair<std::string, Sum>> rows(sums.begin(), sums.end());
  std::sort(rows.begin(), rows.end(), [](auto &one, auto &other) {
    return std::pair(-one.second.milliseconds, one.first) <
           std::pair(-other.second.milliseconds, other.first);
  });
  std::FILE *out = std::fopen(file.c_str(), "w");
  if (!out) {
    std::cerr << "pipec-run: note: cannot write " + file + "\n";
    return;
  }
  std::fprintf(out, "milliseconds\tcalls\tcall\n");
  for (auto &[what, sum] : rows)
    std::fprintf(out, "%.6f\t%lld\t%s\n", sum.milliseconds,
                 static_cast<long long>(sum.calls), what.c_str());
  std::fclose(out);
}

} // namespace pipec::cuda
