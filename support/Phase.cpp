//===- Phase.cpp - what the program is doing ------------------------------===//
#include "support/Phase.h"

#include <algorithm>
#include <mutex>

namespace pipec {
namespace {

std::atomic<int> audiences{0};

thread_local int silences = 0;

std::mutex lock; ///< of the list
std::vector<const Phase *> list;

} // namespace

Phase::Phase(std::string_view name, int64_t total) : total(total) {
  if (silences > 0 || audiences.load(std::memory_order_relaxed) == 0)
    return;
  this->name = name;
  isListed = true;
  const std::lock_guard<std::mutex> guard(lock);
  list.push_back(this);
}

Phase::~Phase() {
  if (!isListed)
    return;
  const std::lock_guard<std::mutex> guard(lock);
  // Mostly the last one; threads end theirs in any order.
  list.erase(std::find(list.rbegin(), list.rend(), this).base() - 1);
}

std::string Phase::text() const {
  const int64_t n = number.load(std::memory_order_relaxed);
  if ((n == 0 && total != kPercent) || total == 1)
    return name;
  std::string text = name + " " + std::to_string(n);
  if (total > 0)
    text += " of " + std::to_string(total);
  return total == kPercent ? text + " %" : text;
}

Phase::Silence::Silence() { ++silences; }
Phase::Silence::~Silence() { --silences; }

Phase::Audience::Audience() { ++audiences; }
Phase::Audience::~Audience() { --audiences; }

std::vector<std::string> phasesUnderWay() {
  const std::lock_guard<std::mutex> guard(lock);
  std::vector<std::string> texts;
  for (const Phase *phase : list)
    texts.push_back(phase->text());
  return texts;
}

} // namespace pipec
