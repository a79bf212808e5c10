//===- SpareCore.cpp - a core that has nothing to do ----------------------===//
#include "support/SpareCore.h"

#include "support/Cores.h"

#include <atomic>

namespace pipec {

static std::atomic<int> claimed{0};

std::optional<SpareCore> SpareCore::claim() {
  static const int spare = availableCores() - 1;
  for (int now = claimed.load(); now < spare;)
    if (claimed.compare_exchange_weak(now, now + 1))
      return SpareCore();
  return std::nullopt;
}

SpareCore::~SpareCore() {
  if (isMine)
    --claimed;
}

} // namespace pipec
