//===- Simulator.cpp - as-soon-as-possible execution of an order ----------===//
//
// Devices run until they need something that is not there yet; whoever produces
// it wakes them. Every action is visited once, every wait resolved once. All
// times are maxima and sums over a fixed precedence graph, so the result does
// not depend on the order in which devices are visited.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/Simulator.h"

#include "support/Failure.h"

#include <algorithm>
#include <limits>

namespace pipec::schedule {

double Timeline::maxPeak() const {
  return peak.empty() ? 0 : *std::max_element(peak.begin(), peak.end());
}
double Timeline::bubbleOverIdeal() const {
  return work > 0 ? (makespan - work) / work : 0;
}
double Timeline::bubbleMakespan() const {
  return makespan > 0 ? (makespan - work) / makespan : 0;
}
double Timeline::bubbleSpan() const {
  return span > 0 ? (span - work) / span : 0;
}

namespace {

constexpr double kPending = -1;

/// A directed pair of devices: when its last transfer ends, and when each
/// message was taken by its consumer, in the order of taking.
struct Channel {
  double freeAt = 0;
  int sent = 0;
  std::vector<double> taken;
};

class Simulation {
public:
  Simulation(const Schedule &schedule, const Costs &costs,
             const SimulateOptions &options)
      : schedule(schedule), costs(costs), options(options),
        microbatches(schedule.microbatches), devices(schedule.devices()),
        plainLinks(!options.linkOccupancy && options.buffers < 0) {}

  Timeline run();

private:
  /// A message, named by the task that produces it: forward or backward output
  /// of (stage, microbatch). -1: none.
  using Key = long long;
  Key key(bool backward, int stage, int microbatch) const {
    return 2 * (static_cast<Key>(stage) * microbatches + microbatch) + backward;
  }
  Key inputOf(const Action &a) const {
    if (a.kind == Kind::F)
      return a.stage ? key(false, a.stage - 1, a.microbatch) : -1;
    if (a.kind == Kind::W || a.stage + 1 == schedule.stages)
      return -1;
    return key(true, a.stage + 1, a.microbatch);
  }
  int consumerOf(const Action &a) const {
    if (a.kind == Kind::W)
      return -1;
    int next = a.kind == Kind::F ? a.stage + 1 : a.stage - 1;
    return next < 0 || next >= schedule.stages
               ? -1
               : schedule.deviceOf(next, a.microbatch);
  }
  int producerOf(Key k) const {
    return schedule.deviceOf(static_cast<int>(k / 2 / microbatches),
                             static_cast<int>(k / 2 % microbatches));
  }

  void advance(int device);
  bool compute(int device);
  bool arrived(int device, Key input);
  bool settled(int device);
  bool pairStarts(int device, std::size_t position) const;
  bool send(int device);
  void take(int device, Key input, double at);
  [[noreturn]] void deadlocked() const;
  void wake(int device) { ready.push_back(device); }
  Channel &channel(int from, int to) { return channels[from * devices + to]; }

  const Schedule &schedule;
  const Costs &costs;
  const SimulateOptions &options;
  const int microbatches, devices;
  const bool plainLinks;

  Timeline line;
  std::vector<double> arrival;   ///< by Key
  std::vector<double> freeAt;    ///< device
  std::vector<std::size_t> next; ///< device -> position
  std::vector<char> sending;     ///< device -> its last action's send is open
  std::vector<Key> waitingFor;   ///< device -> Key, -1 none
  std::vector<double> verdict;   ///< device -> when it passed its own on
  std::vector<int> ready;
  std::vector<Channel> channels;
};

Timeline Simulation::run() {
  arrival.assign(2ull * schedule.stages * microbatches, kPending);
  freeAt.assign(devices, 0);
  next.assign(devices, 0);
  sending.assign(devices, 0);
  waitingFor.assign(devices, -1);
  if (options.after) {
    freeAt = options.after->release;
    verdict.assign(devices, kPending);
  }
  if (!plainLinks)
    channels.resize(static_cast<std::size_t>(devices) * devices);
  line.start.resize(devices);
  line.end.resize(devices);
  line.memory.resize(devices);
  line.peak.assign(devices, 0);
  line.busy.assign(devices, 0);
  for (int d = devices - 1; d >= 0; --d) {
    line.start[d].reserve(schedule.order[d].size());
    line.end[d].reserve(schedule.order[d].size());
    line.memory[d].reserve(schedule.order[d].size());
    wake(d);
  }
  while (!ready.empty()) {
    int device = ready.back();
    ready.pop_back();
    advance(device);
  }
  double first = std::numeric_limits<double>::infinity(), last = 0;
  for (int d = 0; d < devices; ++d) {
    if (next[d] < schedule.order[d].size() || sending[d])
      deadlocked();
    if (line.start[d].empty())
      continue;
    first = std::min(first, line.start[d].front());
    last = std::max(last, line.end[d].back());
    line.span = std::max(line.span, line.end[d].back() - line.start[d].front());
    line.work = std::max(line.work, line.busy[d]);
  }
  line.makespan = last > 0 ? last - first : 0;
  return std::move(line);
}

void Simulation::advance(int device) {
  while (true) {
    if (sending[device]) {
      if (!send(device))
        return;
      sending[device] = 0;
    }
    if (next[device] == schedule.order[device].size() || !compute(device))
      return;
  }
}

/// Whether the input is there; otherwise the device waits for it.
bool Simulation::arrived(int device, Key input) {
  if (input < 0 || arrival[input] != kPending)
    return true;
  waitingFor[device] = input;
  if (options.buffers == 0)
    wake(producerOf(input));
  return false;
}

/// Whether the device may go on, as far as the step before is concerned.
bool Simulation::settled(int device) {
  if (!options.after || verdict[device] != kPending ||
      static_cast<int>(next[device]) != options.after->ahead[device])
    return true;
  if (device + 1 < devices) {
    if (verdict[device + 1] == kPending)
      return false;
    freeAt[device] =
        std::max(freeAt[device], verdict[device + 1] + options.after->latency);
  }
  verdict[device] = freeAt[device];
  if (device > 0)
    wake(device - 1);
  return true;
}

bool Simulation::pairStarts(int device, std::size_t position) const {
  return options.fusePairs && !schedule.pairs.empty() &&
         std::binary_search(schedule.pairs[device].begin(),
                            schedule.pairs[device].end(),
                            static_cast<int>(position));
}

bool Simulation::compute(int device) {
  const Action &a = schedule.order[device][next[device]];
  Key input = inputOf(a);
  if (!settled(device) || !arrived(device, input))
    return false;
  double begin = freeAt[device];
  if (pairStarts(device, next[device])) {
    Key other = inputOf(schedule.order[device][next[device] + 1]);
    if (!arrived(device, other))
      return false;
    if (other >= 0)
      begin = std::max(begin, arrival[other]);
  }
  if (input >= 0) {
    begin = std::max(begin, arrival[input]);
    take(device, input, begin);
  }
  waitingFor[device] = -1;
  double time = costs.time(a.kind, a.stage, device);
  double before = next[device] ? line.memory[device].back() : 0;
  double held = before + costs.memory(a.kind, a.stage, device);
  line.start[device].push_back(begin);
  line.end[device].push_back(begin + time);
  line.memory[device].push_back(held);
  line.peak[device] = std::max(line.peak[device], held);
  line.busy[device] += time;
  freeAt[device] = begin + time;
  ++next[device];
  sending[device] = 1;
  return true;
}

/// The output of the device's last action leaves; false when it must wait.
bool Simulation::send(int device) {
  const Action &a = schedule.order[device][next[device] - 1];
  int to = consumerOf(a);
  if (to < 0)
    return true;
  Key output = key(a.kind != Kind::F, a.stage, a.microbatch);
  double leaves = freeAt[device];
  if (pairStarts(device, next[device] - 1)) {
    const Action &other = schedule.order[device][next[device]];
    leaves += costs.time(other.kind, other.stage, device);
  }
  double hop = costs.hop(a.kind == Kind::F ? a.stage : a.stage - 1, device, to);
  if (!plainLinks && to != device) {
    Channel &link = channel(device, to);
    if (options.buffers == 0) {
      if (waitingFor[to] != output)
        return false;
      leaves = freeAt[device] = std::max(leaves, freeAt[to]);
    } else if (options.buffers > 0 && link.sent >= options.buffers) {
      std::size_t freed = link.sent - options.buffers;
      if (freed >= link.taken.size())
        return false;
      leaves = freeAt[device] = std::max(leaves, link.taken[freed]);
    }
    if (options.linkOccupancy) {
      leaves = std::max(leaves, link.freeAt);
      link.freeAt = leaves + hop;
    }
    ++link.sent;
  }
  arrival[output] = leaves + hop;
  if (waitingFor[to] == output)
    wake(to);
  return true;
}

void Simulation::take(int device, Key input, double at) {
  if (plainLinks)
    return;
  int from = producerOf(input);
  if (from == device)
    return;
  channel(from, device).taken.push_back(at);
  if (sending[from])
    wake(from);
}

void Simulation::deadlocked() const {
  for (int d = 0; d < devices; ++d) {
    if (sending[d])
      throw Failure(Exit::BadPlan,
                    schedule.name + ": device " + std::to_string(d) +
                        " waits for ever to send the result of " +
                        toString(schedule.order[d][next[d] - 1]));
    if (next[d] < schedule.order[d].size())
      throw Failure(Exit::BadPlan, schedule.name + ": device " +
                                       std::to_string(d) +
                                       " waits for ever at " +
                                       toString(schedule.order[d][next[d]]));
  }
  throw Failure(Exit::Internal, schedule.name + ": simulator lost a device");
}

} // namespace

Timeline simulate(const Schedule &schedule, const Costs &costs,
                  const SimulateOptions &options) {
  return Simulation(schedule, costs, options).run();
}

} // namespace pipec::schedule
