#include "compiler/schedule/SpareSlots.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace pipec::schedule {

namespace {

/// A copy of a stage: its slots, as the driver's Slots hands them out.
struct Seat {
  int local = 1;          ///< microbatches, and so slots at most
  int in = 0, gradIn = 0; ///< free slots
  int sending = 2;        ///< slots to send from, by turns
  int values = 0, gradients = 0;
  std::array<int, 2> value{-1, -1}, gradient{-1, -1}; ///< in them
};

/// The programs of all devices, run until they end or wait for each other.
class Programs {
public:
  Programs(const Schedule &order, const Sends &sends)
      : order(order), sends(sends), valuesFrom(senders(sends.values)),
        gradientsFrom(senders(sends.gradients)) {
    for (int s = 0; s < order.stages; ++s) {
      const std::vector<int> &copies = order.placement[s];
      const size_t first = own.size();
      for (const int device : copies)
        own.push_back(seatOf(device, s));
      for (int k = 0; k < order.microbatches; ++k) {
        const size_t copy = static_cast<size_t>(k) % copies.size();
        places.push_back({copies[copy], first + copy});
      }
    }
  }

  bool end(int spare) {
    begin(spare);
    std::vector<int> ready(devices.size());
    std::iota(ready.begin(), ready.end(), 0);
    while (!ready.empty()) {
      woken.clear();
      for (const int d : ready) {
        advance(d); // as far as it gets, whatever it wakes itself for
        devices[d].isReady = false;
      }
      ready.swap(woken);
    }
    for (int d = 0; d < order.devices(); ++d)
      if (devices[d].next < order.order[d].size())
        return false;
    return true;
  }

private:
  struct Device {
    size_t next = 0;     ///< the task to run
    size_t posting = 0;  ///< the task whose receives are to be posted
    bool isReady = true; ///< or is woken
  };
  struct Messages {
    std::vector<char> taken, sent; ///< by stage and microbatch, as bool
  };
  /// Where a stage handles a microbatch.
  struct Place {
    int device;
    size_t seat;
  };

  static std::vector<std::vector<int>>
  senders(const std::vector<std::vector<int>> &takers) {
    std::vector<std::vector<int>> result(takers.size());
    for (size_t s = 0; s < takers.size(); ++s)
      for (const int taker : takers[s])
        result[taker].push_back(static_cast<int>(s));
    return result;
  }

  /// Without spare slots.
  Seat seatOf(int device, int stage) const {
    const auto &actions = order.order[device];
    const bool isFirst = stage == 0;
    Seat seat;
    seat.local =
        std::max(1, static_cast<int>(std::count_if(
                        actions.begin(), actions.end(), [&](const Action &a) {
                          return a.stage == stage && a.kind == Kind::F;
                        })));
    seat.in = inFlight(order, device, stage) + !isFirst;
    seat.gradIn =
        betweenHalves(order, device, stage) + !gradientsFrom[stage].empty();
    seat.sending = std::min(2, seat.local);
    return seat;
  }

  void begin(int spare) {
    const size_t messages = static_cast<size_t>(order.stages) *
                            static_cast<size_t>(order.microbatches);
    for (Messages *marks : {&forward, &backward}) {
      marks->taken.assign(messages, 0);
      marks->sent.assign(messages, 0);
    }
    devices.assign(static_cast<size_t>(order.devices()), {});
    seats = own;
    for (Seat &seat : seats)
      for (int *slots : {&seat.in, &seat.gradIn})
        *slots = std::clamp(*slots + spare, 1, seat.local);
  }

  Seat &seatOf(const Action &a) {
    return seats[places[message(a.stage, a.microbatch)].seat];
  }
  size_t message(int stage, int microbatch) const {
    return static_cast<size_t>(stage) *
               static_cast<size_t>(order.microbatches) +
           static_cast<size_t>(microbatch);
  }
  void wake(int stage, int microbatch) {
    const int device = places[message(stage, microbatch)].device;
    if (!devices[device].isReady)
      woken.push_back(device), devices[device].isReady = true;
  }

  bool post(const Action &a) {
    if (a.kind == Kind::W)
      return true;
    const bool isForward = a.kind == Kind::F;
    if (!isForward && gradientsFrom[a.stage].empty())
      return true;
    int &free = isForward ? seatOf(a).in : seatOf(a).gradIn;
    if (free == 0)
      return false;
    --free;
    (isForward ? forward : backward).taken[message(a.stage, a.microbatch)] = 1;
    for (const int stage : (isForward ? valuesFrom : gradientsFrom)[a.stage])
      wake(stage, a.microbatch);
    return true;
  }

  bool isOutside(int stage) const { return stage < 0 || stage >= order.stages; }

  /// Whether what the task reads has been sent.
  bool hasCome(const Action &a) const {
    const int from = a.stage + (a.kind == Kind::F ? -1 : 1);
    return a.kind == Kind::W || isOutside(from) ||
           (a.kind == Kind::F ? forward : backward)
               .sent[message(from, a.microbatch)];
  }

  /// Sends what the task makes, where the slot it writes is free.
  bool send(const Action &a) {
    const bool isForward = a.kind == Kind::F;
    if (a.kind == Kind::W)
      return true;
    Messages &messages = isForward ? forward : backward;
    const std::vector<int> &takers =
        (isForward ? sends.values : sends.gradients)[a.stage];
    if (!takers.empty()) {
      Seat &seat = seatOf(a);
      int &count = isForward ? seat.values : seat.gradients;
      int &held =
          (isForward ? seat.value : seat.gradient)[count % seat.sending];
      if (held >= 0)
        for (const int stage : takers)
          if (!messages.taken[message(stage, held)])
            return false;
      held = a.microbatch;
      ++count;
    }
    messages.sent[message(a.stage, a.microbatch)] = 1;
    // Who works on it next waits for it, whatever it is that is sent.
    if (const int next = a.stage + (isForward ? 1 : -1); !isOutside(next))
      wake(next, a.microbatch);
    return true;
  }

  void advance(int d) {
    const auto &actions = order.order[d];
    Device &device = devices[d];
    while (true) {
      while (device.posting < actions.size() && post(actions[device.posting]))
        ++device.posting;
      if (device.next >= device.posting || !hasCome(actions[device.next]) ||
          !send(actions[device.next]))
        return;
      const Action &done = actions[device.next++];
      if (done.kind == Kind::B || done.kind == Kind::W) {
        Seat &seat = seatOf(done);
        ++seat.in, ++seat.gradIn;
      }
    }
  }

  const Schedule &order;
  const Sends &sends;
  std::vector<std::vector<int>> valuesFrom, gradientsFrom; ///< by taker
  std::vector<Device> devices;
  std::vector<Place> places;    ///< by stage and microbatch
  std::vector<Seat> own, seats; ///< of all stages' copies
  Messages forward, backward;
  std::vector<int> woken;
};

/// Every stage to its neighbours.
Sends straight(int stages, const Sends &sends) {
  Sends all{std::vector<std::vector<int>>(static_cast<size_t>(stages)),
            std::vector<std::vector<int>>(static_cast<size_t>(stages))};
  for (int s = 0; s + 1 < stages; ++s) {
    if (!sends.keepsValues)
      all.values[s] = {s + 1};
    all.gradients[s + 1] = {s};
  }
  return all;
}

} // namespace

int spareSlots(const Schedule &schedule, const Sends &sends) {
  const Sends all =
      sends.gradients.empty() ? straight(schedule.stages, sends) : sends;
  Programs programs(schedule, all);
  int spare = 0;
  while (spare < schedule.microbatches && !programs.end(spare))
    spare = std::max(1, 2 * spare);
  return spare;
}

} // namespace pipec::schedule
