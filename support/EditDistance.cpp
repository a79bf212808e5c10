//===- EditDistance.cpp - how far a word is from what was meant -----------===//
#include "support/EditDistance.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace pipec {
namespace {

/// One column of the table of distances after another; `start`(j): the distance
/// of nothing to the first j letters.
template <typename Start, typename Column>
void forEachColumn(const std::string &text, const std::string &name,
                   const Start &start, const Column &visit) {
  std::vector<size_t> column(text.size() + 1);
  std::iota(column.begin(), column.end(), size_t(0));
  visit(column.back());
  std::vector<size_t> before, last; // the columns before this one
  for (size_t j = 1; j <= name.size(); ++j) {
    before = std::exchange(last, column);
    column[0] = start(j);
    for (size_t i = 1; i <= text.size(); ++i) {
      const size_t replaced = last[i - 1] + (text[i - 1] != name[j - 1]);
      column[i] = std::min({replaced, last[i] + 1, column[i - 1] + 1});
      const bool swapped = i > 1 && j > 1 && text[i - 1] == name[j - 2] &&
                           text[i - 2] == name[j - 1];
      if (swapped)
        column[i] = std::min(column[i], before[i - 2] + 1);
    }
    visit(column.back());
  }
}

} // namespace

size_t editDistance(const std::string &from, const std::string &to) {
  size_t last = 0;
  forEachColumn(
      from, to, [](size_t j) { return j; },
      [&](size_t distance) { last = distance; });
  return last;
}

size_t editDistanceToPart(const std::string &text, const std::string &name) {
  size_t best = text.size();
  forEachColumn(
      text, name, [](size_t) { return size_t(0); }, // it may begin anywhere
      [&](size_t distance) { best = std::min(best, distance); });
  return best;
}

} // namespace pipec
