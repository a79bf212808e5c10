//===- SampleLosses.cpp - the loss of a pass over the data ----------------===//
#include "runtime/exec/SampleLosses.h"
#include "support/Failure.h"

#include <cmath>
#include <cstring>

namespace pipec {
namespace {

/// A sample's terms and how much they count.
struct Row {
  float terms, counted;
};

Row rowAt(const char *sums, int64_t index) {
  Row row;
  std::memcpy(&row, sums + index * static_cast<int64_t>(sizeof row),
              sizeof row);
  return row;
}

} // namespace

void SampleLosses::check(int64_t number, const char *sums, int64_t rows) const {
  for (int64_t i = 0; i < rows; ++i) {
    const Row row = rowAt(sums, i);
    if (std::isfinite(row.terms) && std::isfinite(row.counted))
      continue;
    const std::string nan = data.notANumber(number);
    throw Failure(
        Exit::BadNumbers,
        "the loss of sample " +
            std::to_string(number * plan.training.microbatch_size + i) +
            " is " + (std::isinf(row.terms) ? "infinite" : "NaN") +
            (nan.empty() ? data.infinite(number) : nan));
  }
}

void SampleLosses::take(int64_t number, const char *sums, int64_t rows) {
  Sum &mine = early[number];
  for (int64_t i = 0; i < rows; ++i) {
    const Row row = rowAt(sums, i);
    mine.terms += row.terms, mine.counted += row.counted;
  }
  for (auto first = early.begin(); first != early.end() && first->first == next;
       first = early.erase(first), ++next)
    sum.terms += first->second.terms, sum.counted += first->second.counted;
}

double SampleLosses::mean() const {
  if (sum.counted == 0)
    throw Failure(Exit::BadNumbers,
                  "the data has no loss: all its labels are ignored");
  return sum.terms / sum.counted;
}

} // namespace pipec
