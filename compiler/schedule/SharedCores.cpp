//===- SharedCores.cpp - an order on devices that share cores -------------===//
//
// Time moves from event to event: a device finishes its action, or data that a
// waiting device needs arrives. Between events every computing device proceeds
// at the rate that its cores leave it.
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
  for (const std::vector<Share> &of : shares)
    for (const Share &share : of)
      ranks[share.group] += share.devices;
  return std::any_of(ranks.begin(), ranks.end(), [&](auto &count) {
    return count.second > cores.at(count.first);
  });
}

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// How long Linux lets a thread compute that others wait for, s.
constexpr double kSlice = 3e-3;

class SharedRun {
public:
  SharedRun(const Schedule &schedule, const Costs &costs,
            const CoreSharing &sharing, const std::vector<double> &tail,
            const SharedSteps &steps)
      : schedule(schedule), costs(costs), tail(tail), steps(steps),
        devices(schedule.devices()), state(devices),
        arrival(2ull * schedule.stages * schedule.microbatches, kNever),
        waits(devices, 0), finished(steps.count, 0) {
    std::map<int, int> numbers; // of groups, from 0
    for (const auto &[group, count] : sharing.cores) {
      numbers.emplace(group, static_cast<int>(numbers.size()));
      cores.push_back(count);
    }
    for (int d = 0; d < devices; ++d) {
      shares.push_back(sharing.shares[d]);
      for (CoreSharing::Share &share : shares.back())
        share.group = numbers.at(share.group);
    }
    load.resize(cores.size()), rates.resize(devices);
    queues.resize(cores.size());
    const auto isAlone = [&](const std::vector<CoreSharing::Share> &of) {
      return of.size() == 1 && cores[of.front().group] == 1;
    };
    inTurn = std::all_of(shares.begin(), shares.end(), isAlone);
  }

  SharedTimeline run() {
    for (auto *times : {&line.start, &line.end, &line.memory}) {
      times->resize(devices);
      for (int d = 0; d < devices; ++d)
        (*times)[d].reserve(schedule.order[d].size());
    }
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
    return {std::move(line), std::move(finished)};
  }

private:
  struct Device {
    std::size_t next = 0;
    int step = 0;
    /// Queued: ready, or in the middle of an action, while another of its core
    /// computes.
    bool computing = false, queued = false, done = false;
    double left = 0; ///< seconds of work, on a core of its own
    /// When it began the tail of that many steps last, and when it passed on
    /// the verdict on the last update of so many.
    double tailAt = kNever, verdictAt = kNever;
    int tails = 0, verdicts = 0;
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
    const Device &device = state[d];
    if (atTail(d))
      return steps.count > 1 && d > 0 ? tailOf(d - 1, device.step) : 0;
    const double ready = readyAt(schedule.order[d][device.next]);
    return gated(d) ? std::max(ready, verdictOf(d + 1, device.step)) : ready;
  }
  /// Whether the device has yet to learn what its last update is worth.
  bool gated(int d) const {
    const Device &device = state[d];
    return steps.count > 1 && !device.done && device.verdicts < device.step &&
           static_cast<int>(device.next) == steps.ahead[d];
  }
  double tailOf(int d, int step) const {
    return state[d].tails > step ? state[d].tailAt + steps.latency : kNever;
  }
  double verdictOf(int d, int step) const {
    if (d == devices)
      return 0;
    return state[d].verdicts >= step ? state[d].verdictAt + steps.latency
                                     : kNever;
  }
  /// Verdicts go from the last device to the first, whatever else they wait
  /// for.
  void passVerdicts() {
    for (int d = devices; d-- > 0;)
      if (gated(d) && !state[d].computing &&
          verdictOf(d + 1, state[d].step) <= now) {
        state[d].verdictAt = now;
        ++state[d].verdicts;
      }
  }
  /// Starts whatever can start now.
  void begin() {
    passVerdicts();
    if (inTurn)
      takeTurns();
    for (int d = 0; d < devices; ++d) {
      Device &device = state[d];
      if (device.computing || device.done)
        continue;
      waits[d] = waitsUntil(d);
      if (waits[d] > now)
        continue;
      if (!inTurn)
        start(d);
      else if (!device.queued)
        enqueue(d);
    }
    inTurn ? rateTurns() : shareAlike();
  }

  void start(int d) {
    Device &device = state[d];
    device.computing = true;
    if (atTail(d)) {
      device.left = tail.empty() ? 0 : tail[d];
      device.tailAt = now;
      ++device.tails;
    } else {
      const Action &a = schedule.order[d][device.next];
      device.left = costs.time(a.kind, a.stage, d);
      take(a);
      if (device.step == 0)
        line.start[d].push_back(now);
    }
    if (inTurn) // all that it stands for, one after the other
      device.left *= shares[d].front().devices;
  }

  //===--------------------------------------------------------------------===//
  // A core for some devices
  //===--------------------------------------------------------------------===//

  struct Queue {
    std::vector<int> devices; ///< the first one has the core
    double until = 0;         ///< when its slice is over
  };

  void enqueue(int d) {
    state[d].queued = true;
    Queue &queue = queues[shares[d].front().group];
    queue.devices.push_back(d);
    if (queue.devices.size() > 1)
      return;
    queue.until = now + kSlice;
    start(d);
  }

  /// Whose turn it is goes on, or begins.
  void takeTurns() {
    for (Queue &queue : queues) {
      if (queue.devices.empty())
        continue;
      if (queue.until <= now) {
        std::rotate(queue.devices.begin(), queue.devices.begin() + 1,
                    queue.devices.end());
        queue.until = now + kSlice;
      }
      if (const int d = queue.devices.front(); !state[d].computing)
        start(d);
    }
  }

  void rateTurns() {
    std::fill(rates.begin(), rates.end(), 0.0);
    for (const Queue &queue : queues)
      if (!queue.devices.empty())
        rates[queue.devices.front()] = 1;
  }

  /// Whoever has done an action stands behind those who wait.
  void leave(int d) {
    Queue &queue = queues[shares[d].front().group];
    queue.devices.erase(queue.devices.begin());
    queue.until = now + kSlice;
    state[d].queued = false;
  }

  //===--------------------------------------------------------------------===//
  // Cores for all
  //===--------------------------------------------------------------------===//

  void shareAlike() {
    std::fill(load.begin(), load.end(), 0.0);
    for (int d = 0; d < devices; ++d)
      if (state[d].computing)
        for (const CoreSharing::Share &share : shares[d])
          load[share.group] += share.devices;
    for (int d = 0; d < devices; ++d) {
      rates[d] = 1;
      if (state[d].computing)
        for (const CoreSharing::Share &share : shares[d])
          rates[d] = std::min(rates[d], cores[share.group] / load[share.group]);
    }
  }

  double nextEvent() const {
    double next = kNever;
    for (int d = 0; d < devices; ++d) {
      if (isRunning(d))
        next = std::min(next, now + timeLeft(d));
      else if (!state[d].computing && !state[d].done && waits[d] > now)
        next = std::min(next, waits[d]);
      if (!state[d].computing && gated(d))
        next = std::min(next, verdictOf(d + 1, state[d].step));
    }
    for (const Queue &queue : queues)
      if (queue.devices.size() > 1)
        next = std::min(next, queue.until);
    return next;
  }

  bool isRunning(int d) const { return state[d].computing && rates[d] > 0; }
  double timeLeft(int d) const { // mostly without the division
    return rates[d] == 1 ? state[d].left : state[d].left / rates[d];
  }

  void proceed(double seconds) {
    for (int d = 0; d < devices; ++d)
      if (isRunning(d)) {
        state[d].left -= seconds * rates[d];
        if (state[d].step == 0)
          line.busy[d] += seconds;
      }
  }

  /// Ends what has no work left; the devices that are not done.
  int finish() {
    int left = 0;
    for (int d = 0; d < devices; ++d) {
      Device &device = state[d];
      // Rounding: what is left of it would take no time.
      if (isRunning(d) && now + timeLeft(d) <= now) {
        device.computing = false;
        if (inTurn)
          leave(d);
        if (atTail(d)) {
          finished[device.step] = std::max(finished[device.step], now);
          device.done = ++device.step == steps.count;
          device.next = device.done ? device.next : 0;
        } else {
          send(d, schedule.order[d][device.next++]);
        }
      }
      left += !device.done;
    }
    return left;
  }

  /// Uses the input up: the next step's arrives under the same key.
  void take(const Action &a) {
    if (a.kind == Kind::F && a.stage > 0)
      arrival[key(false, a.stage - 1, a.microbatch)] = kNever;
    else if ((a.kind == Kind::B || a.kind == Kind::I) &&
             a.stage + 1 < schedule.stages)
      arrival[key(true, a.stage + 1, a.microbatch)] = kNever;
  }

  void record(int d, const Action &a) {
    line.end[d].push_back(now);
    const double before = line.memory[d].empty() ? 0 : line.memory[d].back();
    line.memory[d].push_back(before + costs.memory(a.kind, a.stage, d));
    line.peak[d] = std::max(line.peak[d], line.memory[d].back());
  }

  void send(int d, const Action &a) {
    if (state[d].step == 0)
      record(d, a);
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
  const std::vector<double> &tail;
  const SharedSteps &steps;
  const int devices;
  std::vector<Device> state;
  std::vector<double> arrival;                         ///< by key
  std::vector<std::vector<CoreSharing::Share>> shares; ///< by device
  std::vector<double> cores;                           ///< by group, from 0
  // As begin() leaves them: the devices that compute, by group, and what share
  // of a core each has, by device.
  std::vector<double> load, rates;
  /// Every device has one core, which others have, too.
  bool inTurn = false;
  std::vector<Queue> queues; ///< by group
  std::vector<double> waits; ///< by device: what the next action waits for
  double now = 0;
  Timeline line;
  std::vector<double> finished; ///< by step
};

} // namespace

SharedTimeline simulateShared(const Schedule &schedule, const Costs &costs,
                              const CoreSharing &sharing,
                              const std::vector<double> &tail,
                              const SharedSteps &steps) {
  return SharedRun(schedule, costs, sharing, tail, steps).run();
}

} // namespace pipec::schedule
