#include "compiler/plan/EqualOrders.h"

#include <cassert>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

namespace pipec::plan {

namespace {

using Key = std::tuple<std::string, int, int, int, int, std::vector<int>>;

/// Made once, unless room is made meanwhile: who asks for it then waits.
struct Order {
  std::mutex mutex;
  std::optional<schedule::Schedule> made;
  size_t actions = 0;
  uint64_t used = 0; ///< when it was last asked for
};

/// One for all models: an order depends on its sizes alone.
class Kept {
public:
  std::shared_ptr<Order> of(const Key &key) {
    const std::lock_guard guard(mutex);
    std::shared_ptr<Order> &entry = orders[key];
    if (!entry)
      entry = std::make_shared<Order>();
    entry->used = ++now;
    return entry;
  }

  /// It has been made: others make room, the longest unused first.
  void keep(const Key &key, const std::shared_ptr<Order> &order, size_t size) {
    const std::lock_guard guard(mutex);
    if (const auto it = orders.find(key);
        it == orders.end() || it->second != order)
      return;
    while (actions + size > kMostActions)
      if (!makeRoom())
        break;
    order->actions = size;
    actions += size;
  }

  void forget(const Key &key) {
    const std::lock_guard guard(mutex);
    orders.erase(key);
  }

  // One is enough for 1,024 devices, two stages each and 512 microbatches: it
  // takes seconds, and is asked for many times. There is room for two such, the
  // orders of both cuts of a strategy that is searched for: some 100 MB.
  static constexpr size_t kMostOfOne = size_t(1) << 22,
                          kMostActions = 2 * kMostOfOne;

private:
  bool makeRoom() {
    auto oldest = orders.end();
    for (auto it = orders.begin(); it != orders.end(); ++it)
      if (it->second->actions > 0 &&
          (oldest == orders.end() || it->second->used < oldest->second->used))
        oldest = it;
    if (oldest == orders.end())
      return false;
    actions -= oldest->second->actions;
    orders.erase(oldest);
    return true;
  }

  std::mutex mutex; ///< of all below, and of orders' actions and used
  std::map<Key, std::shared_ptr<Order>> orders;
  size_t actions = 0;
  uint64_t now = 0;
};

Kept &kept() {
  static Kept orders;
  return orders;
}

size_t actionsOf(const schedule::Schedule &order) {
  size_t count = 0;
  for (const auto &actions : order.order)
    count += actions.size();
  return count;
}

} // namespace

schedule::Schedule equalOrder(const std::string &schedule,
                              const schedule::ScheduleRequest &size) {
  // What is no size would be missing in the key.
  assert(size.costs.forward.empty() && !size.stageCosts &&
         size.warmup.empty() && size.groupSize == 0 && size.effort == 1);
  const Key key{schedule,    size.devices, size.microbatches,
                size.chunks, size.slices,  size.replicas};
  const std::shared_ptr<Order> order = kept().of(key);
  const std::lock_guard making(order->mutex);
  if (order->made)
    return *order->made;
  schedule::Schedule made;
  try {
    made = schedule::generate(schedule, size);
  } catch (...) {
    kept().forget(key);
    throw;
  }
  const size_t actions = actionsOf(made);
  if (actions > Kept::kMostOfOne) {
    kept().forget(key);
    return made;
  }
  order->made = made;
  kept().keep(key, order, actions);
  return made;
}

} // namespace pipec::plan
