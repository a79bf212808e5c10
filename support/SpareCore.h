//===- SpareCore.h - a core that has nothing to do --------------*- C++ -*-===//
#pragma once

#include <optional>
#include <utility>

namespace pipec {

/// The right to one more thread, for as long as it lives: there are as many as
/// this process may run on cores, less the one that asks, whatever else in it
/// has claimed some.
class SpareCore {
public:
  /// None where all have been claimed.
  static std::optional<SpareCore> claim();
  ~SpareCore();
  SpareCore(SpareCore &&other) noexcept
      : isMine(std::exchange(other.isMine, false)) {}
  SpareCore(const SpareCore &) = delete;
  SpareCore &operator=(const SpareCore &) = delete;

private:
  SpareCore() = default;
  bool isMine = true;
};

} // namespace pipec
