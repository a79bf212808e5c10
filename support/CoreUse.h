//===- CoreUse.h - who had this machine's cores -----------------*- C++ -*-===//
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace pipec {

/// Seconds of cores, of those that this process may run on, since the machine
/// came up.
struct CoreSeconds {
  double total = 0, idle = 0;
};

/// The cores for which `usable` is true, in the text of /proc/stat. What the
/// hypervisor gave to others is not idle.
CoreSeconds readCoreSeconds(const std::string &stat, double ticksPerSecond,
                            bool (*usable)(int core));

/// What one process knows of a stretch of time.
struct CoreUse {
  uint64_t host = 0; ///< the same for processes of one machine
  int64_t process = 0;
  CoreSeconds cores;
  double own = 0; ///< seconds of cores that this process had, and those it
                  ///< started and waited for
  std::array<uint64_t, 16> mask = {}; ///< the cores it may run on
};

/// Now, since the machine and the process came up. All zero where the system
/// does not say.
CoreUse coreUse();

CoreUse operator-(CoreUse end, const CoreUse &begin);

/// The share of the cores of `uses[0]`'s machine that went to others than these
/// processes: other programs, or other virtual machines. Where the processes
/// may run on different cores, the share of those who suffered most. 0 where
/// the others left more idle than they took, so that nobody waited for them.
double shareOfOthers(const std::vector<CoreUse> &uses);

/// From here on the user is told of the others.
constexpr double kNoticedShare = 0.1;

} // namespace pipec
