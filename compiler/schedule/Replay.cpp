//===- Replay.cpp - untimed execution of the per-device programs ----------===//
#include "compiler/schedule/Replay.h"

#include "compiler/schedule/Verifier.h"

#include <algorithm>

namespace pipec::schedule {

std::optional<Action> producerOf(const Schedule &schedule,
                                 const Action &action) {
  if (action.kind == Kind::F && action.stage > 0)
    return Action{Kind::F, action.stage - 1, action.microbatch};
  if ((action.kind == Kind::B || action.kind == Kind::I) &&
      action.stage + 1 < schedule.stages)
    return Action{Kind::B, action.stage + 1, action.microbatch};
  return std::nullopt;
}

int consumerOf(const Schedule &schedule, const Action &action) {
  int next = action.kind == Kind::F   ? action.stage + 1
             : action.kind == Kind::W ? -1
                                      : action.stage - 1;
  if (next < 0 || next >= schedule.stages)
    return -1;
  return schedule.deviceOf(next, action.microbatch);
}

namespace {

class Network {
public:
  Network(const Schedule &schedule, const ReplayOptions &options);
  std::optional<Stuck> run();

private:
  /// What a device does next with the action at its cursor.
  enum Phase : char { Compute, Send, Update };
  struct Device {
    std::size_t at = 0;
    Phase phase = Compute;
  };

  const Action &current(int d) const { return schedule.order[d][state[d].at]; }
  bool finished(int d) const { return state[d].at == schedule.order[d].size(); }
  std::size_t slot(const Action &task) const {
    return 2 * (static_cast<std::size_t>(task.stage) * schedule.microbatches +
                task.microbatch) +
           (task.kind != Kind::F);
  }
  std::size_t pair(int from, int to) const {
    return static_cast<std::size_t>(from) * schedule.devices() + to;
  }
  bool step(int d);
  bool compute(int d);
  bool send(int d);
  bool update(int d);
  /// The device `d` waits for, or -1 when it could go on.
  int waitsFor(int d) const;
  std::string explain(int d) const;
  Stuck diagnose(int d) const;
  int lateCopy(int d) const;

  const Schedule &schedule;
  const ReplayOptions &options;
  std::vector<Device> state;
  std::vector<char> sent;                  ///< by slot
  std::vector<int> inChannel;              ///< by pair; only with a bound
  std::vector<std::vector<int>> backwards; ///< [stage][copy]
  std::vector<int> ready;
};

Network::Network(const Schedule &schedule, const ReplayOptions &options)
    : schedule(schedule), options(options), state(schedule.devices()),
      sent(2ull * schedule.stages * schedule.microbatches, 0) {
  if (options.buffers >= 0)
    inChannel.assign(pair(schedule.devices(), 0), 0);
  for (const auto &copies : schedule.placement)
    backwards.emplace_back(copies.size(), 0);
}

std::optional<Stuck> Network::run() {
  for (int d = 0; d < schedule.devices(); ++d)
    ready.push_back(d);
  while (!ready.empty()) {
    int d = ready.back();
    ready.pop_back();
    while (!finished(d) && step(d))
      ;
  }
  for (int d = 0; d < schedule.devices(); ++d)
    if (!finished(d))
      return diagnose(d);
  return std::nullopt;
}

bool Network::step(int d) {
  switch (state[d].phase) {
  case Compute:
    if (!compute(d))
      return false;
    state[d].phase = Send;
    return true;
  case Send:
    if (!send(d))
      return false;
    state[d].phase = Update;
    return true;
  case Update:
    break;
  }
  if (!update(d))
    return false;
  state[d].phase = Compute;
  ++state[d].at;
  return true;
}

bool Network::compute(int d) {
  const Action &a = current(d);
  if (auto producer = producerOf(schedule, a)) {
    int from = schedule.deviceOf(producer->stage, producer->microbatch);
    if (!sent[slot(*producer)]) {
      if (options.buffers == 0 && from != d)
        ready.push_back(from);
      return false;
    }
    if (options.buffers >= 0 && from != d) {
      --inChannel[pair(from, d)];
      ready.push_back(from);
    }
  }
  if (a.kind == Kind::B || a.kind == Kind::W) {
    int copy = schedule.replicaOn(a.stage, d);
    ++backwards[a.stage][copy];
    if (!options.updateEvery.empty())
      for (int other : schedule.placement[a.stage])
        if (other != d)
          ready.push_back(other);
  }
  return true;
}

bool Network::send(int d) {
  const Action &a = current(d);
  int to = consumerOf(schedule, a);
  if (to < 0)
    return true;
  if (options.buffers >= 0 && to != d && waitsFor(d) >= 0)
    return false;
  if (options.buffers >= 0 && to != d)
    ++inChannel[pair(d, to)];
  sent[slot(a)] = 1;
  if (to != d)
    ready.push_back(to);
  return true;
}

/// A copy that has ended a round waits until all copies have.
bool Network::update(int d) {
  const Action &a = current(d);
  if (options.updateEvery.empty() || (a.kind != Kind::B && a.kind != Kind::W) ||
      schedule.replicas(a.stage) == 1)
    return true;
  return lateCopy(d) < 0;
}

int Network::lateCopy(int d) const {
  const Action &a = current(d);
  int copies = schedule.replicas(a.stage);
  int every = options.updateEvery[a.stage] / copies;
  int copy = schedule.replicaOn(a.stage, d);
  int mine = backwards[a.stage][copy];
  if (every < 1 || mine % every != 0 || mine * copies > schedule.microbatches)
    return -1;
  for (int c = 0; c < copies; ++c)
    if (backwards[a.stage][c] < mine)
      return schedule.placement[a.stage][c];
  return -1;
}

int Network::waitsFor(int d) const {
  const Action &a = current(d);
  if (state[d].phase == Update)
    return lateCopy(d);
  if (state[d].phase == Compute) {
    auto producer = producerOf(schedule, a);
    return producer && !sent[slot(*producer)]
               ? schedule.deviceOf(producer->stage, producer->microbatch)
               : -1;
  }
  int to = consumerOf(schedule, a);
  if (to < 0 || to == d || options.buffers < 0)
    return -1;
  if (options.buffers > 0)
    return inChannel[pair(d, to)] < options.buffers ? -1 : to;
  // Rendezvous: the receiver must stand at exactly this message.
  if (finished(to) || state[to].phase != Compute)
    return to;
  auto wanted = producerOf(schedule, current(to));
  return wanted && slot(*wanted) == slot(a) ? -1 : to;
}

std::string Network::explain(int d) const {
  std::string text = "device " + std::to_string(d);
  switch (state[d].phase) {
  case Compute:
    return text + " waits at " + toString(current(d));
  case Send:
    return text + " waits to send the result of " + toString(current(d));
  case Update:
    break;
  }
  return text + " waits for the update after " + toString(current(d));
}

Stuck Network::diagnose(int d) const {
  // Follow the waits until they close; a finished device or a task that is on
  // the waiter's own list cannot be reached again either, so say where it ends.
  std::vector<int> path;
  while (std::find(path.begin(), path.end(), d) == path.end()) {
    path.push_back(d);
    int other = waitsFor(d);
    if (other < 0 || finished(other))
      break;
    d = other;
  }
  auto begin = std::find(path.begin(), path.end(), d);
  std::string cycle;
  constexpr std::size_t kShown = 6;
  std::size_t length = path.end() - begin;
  for (std::size_t i = 0; i < std::min(length, kShown); ++i)
    cycle += (i ? ", which waits for: " : "") + explain(begin[i]);
  if (length > kShown)
    cycle += ", … (" + std::to_string(length) + " devices in a circle)";
  return {*begin, static_cast<int>(state[*begin].at), cycle};
}

} // namespace

std::optional<Stuck> replay(const Schedule &schedule,
                            const ReplayOptions &options) {
  return Network(schedule, options).run();
}

int buffersNeeded(const Schedule &schedule) {
  if (replay(schedule, {}))
    return -1;
  // Finishing is monotone in the bound, and M*stages messages always fit.
  int low = 0, high = 1;
  auto finishes = [&](int buffers) {
    ReplayOptions options;
    options.buffers = buffers;
    return !replay(schedule, options);
  };
  if (finishes(0))
    return 0;
  while (!finishes(high)) {
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    int middle = (low + high) / 2;
    (finishes(middle) ? high : low) = middle;
  }
  return high;
}

} // namespace pipec::schedule
