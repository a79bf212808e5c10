//===- SharedCores.cpp - an order on devices that share cores -------------===//
//
// Time moves from event to event: a device finishes its action, or data that a
// waiting device needs arrives. Between events every computing device proceeds
// at its server's rate.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/SharedCores.h"

#include "support/Failure.h"

#include <algorithm>
#include <limits>
#include <map>

namespace pipec::schedule {

bool CoreSharing::scarce() const {
  std::map<int, int> ranks;
  for (std::size_t d = 0; d < server.size(); ++d)
    ranks[server[d]] += copies.empty() ? 1 : copies[d];
  return cores > 0 && std::any_of(ranks.begin(), ranks.end(), [&](auto &count) {
           return count.second > cores;
         });
}

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class SharedRun {
public:
  SharedRun(const Schedule &schedule, const Costs &costs,
            const CoreSharing &sharing, const std::vector<double> &tail)
      : schedule(schedule), costs(costs), sharing(sharing), tail(tail),
        devices(schedule.devices()), state(devices),
        arrival(2ull * schedule.stages * schedule.microbatches, kNever) {}

  SharedTimeline run() {
    line.start.resize(devices), line.end.resize(devices);
    line.memory.resize(devices);
    line.peak.assign(devices, 0), line.busy.assign(devices, 0);
    int left = devices;
    while (left > 0) {
      begin();
      const double next = nextEvent();
      if (next == kNever)
        deadlocked();
      proceed(next - now);
      now = next;
      left = finish();
    }
    summarize();
    return {std::move(line), now};
  }

private:
  struct Device {
    std::size_t next = 0;
    bool computing = false, done = false;
    double left = 0; ///< seconds of work, on a core of its own
  };

  std::size_t key(bool backward, int stage, int microbatch) const {
    return 2 * (static_cast<std::size_t>(stage) * schedule.microbatches +
                microbatch) +
           backward;
  }
  double readyAt(const Action &a) const {
    if (a.kind == Kind::W)
      return 0;
    if (a.kind == Kind::F)
      return a.stage ? arrival[key(false, a.stage - 1, a.microbatch)] : 0;
    return a.stage + 1 < schedule.stages
               ? arrival[key(true, a.stage + 1, a.microbatch)]
               : 0;
  }
  bool atTail(int d) const { return state[d].next == schedule.order[d].size(); }
  double waitsUntil(int d) const {
    return atTail(d) ? 0 : readyAt(schedule.order[d][state[d].next]);
  }
  int copies(int d) const {
    return sharing.copies.empty() ? 1 : sharing.copies[d];
  }

  /// Starts whatever can start now.
  void begin() {
    for (int d = 0; d < devices; ++d) {
      Device &device = state[d];
      if (device.computing || device.done || waitsUntil(d) > now)
        continue;
      device.computing = true;
      if (atTail(d)) {
        device.left = tail.empty() ? 0 : tail[d];
        continue;
      }
      const Action &a = schedule.order[d][device.next];
      device.left = costs.time(a.kind, a.stage);
      line.start[d].push_back(now);
    }
    load.clear();
    for (int d = 0; d < devices; ++d)
      if (state[d].computing)
        load[sharing.server[d]] += copies(d);
  }

  double rate(int d) const {
    const int active = load.at(sharing.server[d]);
    return active > sharing.cores ? static_cast<double>(sharing.cores) / active
                                  : 1.0;
  }

  double nextEvent() const {
    double next = kNever;
    for (int d = 0; d < devices; ++d) {
      if (state[d].computing)
        next = std::min(next, now + state[d].left / rate(d));
      else if (!state[d].done && waitsUntil(d) > now)
        next = std::min(next, waitsUntil(d));
    }
    return next;
  }

  void proceed(double seconds) {
    for (int d = 0; d < devices; ++d)
      if (state[d].computing) {
        state[d].left -= seconds * rate(d);
        line.busy[d] += seconds;
      }
  }

  /// Ends what has no work left; the devices that are not done.
  int finish() {
    int left = 0;
    for (int d = 0; d < devices; ++d) {
      Device &device = state[d];
      // Rounding: what is left of it would take no time.
      if (device.computing && now + device.left / rate(d) <= now) {
        device.computing = false;
        if (atTail(d))
          device.done = true;
        else
          send(d, schedule.order[d][device.next++]);
      }
      left += !device.done;
    }
    return left;
  }

  void send(int d, const Action &a) {
    line.end[d].push_back(now);
    const double before = line.memory[d].empty() ? 0 : line.memory[d].back();
    line.memory[d].push_back(before + costs.memory(a.kind, a.stage));
    line.peak[d] = std::max(line.peak[d], line.memory[d].back());
    const int to = a.kind == Kind::F ? a.stage + 1 : a.stage - 1;
    if (a.kind == Kind::W || to < 0 || to >= schedule.stages)
      return;
    const int boundary = std::min(a.stage, to);
    arrival[key(a.kind != Kind::F, a.stage, a.microbatch)] =
        now + costs.hop(boundary, d, schedule.deviceOf(to, a.microbatch));
  }

  void summarize() {
    double first = kNever, last = 0;
    for (int d = 0; d < devices; ++d) {
      if (line.start[d].empty())
        continue;
      first = std::min(first, line.start[d].front());
      last = std::max(last, line.end[d].back());
      line.span =
          std::max(line.span, line.end[d].back() - line.start[d].front());
      line.work = std::max(line.work, line.busy[d]);
    }
    line.makespan = last > 0 ? last - first : 0;
  }

  [[noreturn]] void deadlocked() const {
    for (int d = 0; d < devices; ++d)
      if (!state[d].done && !state[d].computing)
        throw Failure(Exit::BadPlan,
                      schedule.name + ": device " + std::to_string(d) +
                          " waits for ever at " +
                          toString(schedule.order[d][state[d].next]));
    throw Failure(Exit::Internal, schedule.name + ": simulator lost a device");
  }

  const Schedule &schedule;
  const Costs &costs;
  const CoreSharing &sharing;
  const std::vector<double> &tail;
  const int devices;
  std::vector<Device> state;
  std::vector<double> arrival; ///< by key
  std::map<int, int> load;     ///< server -> devices that compute
  double now = 0;
  Timeline line;
};

} // namespace

SharedTimeline simulateShared(const Schedule &schedule, const Costs &costs,
                              const CoreSharing &sharing,
                              const std::vector<double> &tail) {
  return SharedRun(schedule, costs, sharing, tail).run();
}

} // namespace pipec::schedule
