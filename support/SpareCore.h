//===- SpareCore.h - a core that has nothing to do --------------*- C++ -*-===//
#pragma once

#include <optional>
#include <utility>

namespace pipec {

/// The right to one more thread, for as long as it lives. There are as many in
/// a process as the cores that it may run on, less one for who asks.
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
