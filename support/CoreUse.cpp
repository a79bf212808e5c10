//===- CoreUse.cpp - who had this machine's cores -------------------------===//
#include "support/CoreUse.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <sched.h>
#include <set>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>

namespace pipec {

CoreSeconds readCoreSeconds(const std::string &stat, double ticksPerSecond,
                            bool (*usable)(int core)) {
  CoreSeconds sum;
  std::istringstream lines(stat);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name.size() < 4 || name.rfind("cpu", 0) != 0 ||
        !usable(std::atoi(name.c_str() + 3)))
      continue;
    // user nice system idle iowait irq softirq steal; guests are in the first.
    double ticks = 0;
    for (int column = 0; column < 8 && words >> ticks; ++column) {
      sum.total += ticks / ticksPerSecond;
      if (column == 3 || column == 4)
        sum.idle += ticks / ticksPerSecond;
    }
  }
  return sum;
}

/// Those of the process's first thread: ranks that are threads may keep to a
/// core each, while the time they had is counted together. All bits where the
/// system does not say.
static std::array<uint64_t, 16> usableCores() {
  std::array<uint64_t, 16> mask;
  mask.fill(~uint64_t(0));
  cpu_set_t set;
  static_assert(sizeof set == sizeof mask);
  if (sched_getaffinity(getpid(), sizeof set, &set) == 0)
    std::memcpy(mask.data(), &set, sizeof set);
  return mask;
}

CoreUse coreUse() {
  CoreUse use;
  use.mask = usableCores();
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  use.host = std::hash<std::string>()(name);
  use.process = getpid();
  std::ifstream file("/proc/stat");
  std::stringstream text;
  text << file.rdbuf();
  use.cores = readCoreSeconds(
      text.str(), static_cast<double>(sysconf(_SC_CLK_TCK)), [](int core) {
        cpu_set_t mask;
        CPU_ZERO(&mask);
        return sched_getaffinity(getpid(), sizeof mask, &mask) != 0 ||
               (core < CPU_SETSIZE && CPU_ISSET(core, &mask));
      });
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  use.own = static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
  rusage children{};
  getrusage(RUSAGE_CHILDREN, &children);
  for (const timeval &part : {children.ru_utime, children.ru_stime})
    use.own += static_cast<double>(part.tv_sec) + 1e-6 * part.tv_usec;
  return use;
}

CoreUse operator-(CoreUse end, const CoreUse &begin) {
  end.cores.total -= begin.cores.total;
  end.cores.idle -= begin.cores.idle;
  end.own -= begin.own;
  return end;
}

static bool meet(const CoreUse &a, const CoreUse &b) {
  for (size_t i = 0; i < a.mask.size(); ++i)
    if (a.mask[i] & b.mask[i])
      return true;
  return false;
}

double shareOfOthers(const std::vector<CoreUse> &uses) {
  double most = 0;
  for (const CoreUse &mine : uses) {
    const CoreSeconds &cores = mine.cores;
    if (mine.host != uses[0].host || !(cores.total > 0))
      continue;
    double others = cores.total - cores.idle;
    std::set<int64_t> counted; // ranks that are threads have one process
    for (const CoreUse &use : uses)
      if (use.host == mine.host && meet(use, mine) &&
          counted.insert(use.process).second)
        others -= use.own;
    if (others > cores.idle)
      most = std::max(most, std::min(1.0, others / cores.total));
  }
  return most;
}

} // namespace pipec
