//===- CoreUse.cpp - who had this machine's cores -------------------------===//
#include "runtime/run/CoreUse.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <functional>
#include <sched.h>
#include <set>
#include <sstream>
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

CoreUse coreUse() {
  CoreUse use;
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
        return sched_getaffinity(0, sizeof mask, &mask) != 0 ||
               (core < CPU_SETSIZE && CPU_ISSET(core, &mask));
      });
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  use.own = static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
  return use;
}

CoreUse operator-(CoreUse end, const CoreUse &begin) {
  end.cores.total -= begin.cores.total;
  end.cores.idle -= begin.cores.idle;
  end.own -= begin.own;
  return end;
}

double shareOfOthers(const std::vector<CoreUse> &uses) {
  if (uses.empty() || !(uses[0].cores.total > 0))
    return 0;
  const CoreSeconds &cores = uses[0].cores;
  double others = cores.total - cores.idle;
  std::set<int64_t> counted; // ranks that are threads have one process
  for (const CoreUse &use : uses)
    if (use.host == uses[0].host && counted.insert(use.process).second)
      others -= use.own;
  return others > cores.idle ? std::min(1.0, others / cores.total) : 0;
}

} // namespace pipec
