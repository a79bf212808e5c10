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

/// Made once: who asks for it meanwhile waits.
struct Order {
  std::mutex mutex;
  std::optional<schedule::Schedule> made;
};

/// One for all models: an order depends on its sizes alone.
struct Kept {
  std::mutex mutex;
  std::map<Key, std::shared_ptr<Order>> orders;
  size_t actions = 0; ///< of those that are made
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
  // One is enough for 1,024 devices, two stages each and 512 microbatches: it
  // takes seconds, and is asked for many times. There is room for two such, the
  // orders of both cuts of a strategy that is searched for: some 100 MB.
  constexpr size_t kMostOfOne = size_t(1) << 22, kMostActions = 2 * kMostOfOne;
  Key key{schedule,    size.devices, size.microbatches,
          size.chunks, size.slices,  size.replicas};
  Kept &known = kept();
  std::shared_ptr<Order> order;
  {
    const std::lock_guard guard(known.mutex);
    std::shared_ptr<Order> &kept = known.orders[key];
    if (!kept)
      kept = std::make_shared<Order>();
    order = kept;
  }
  const std::lock_guard making(order->mutex);
  if (order->made)
    return *order->made;
  schedule::Schedule made = schedule::generate(schedule, size);
  const size_t actions = actionsOf(made);
  if (actions > kMostOfOne)
    return made;
  order->made = made;
  const std::lock_guard guard(known.mutex);
  if (known.actions + actions > kMostActions)
    known.orders.clear(), known.actions = 0;
  known.orders[std::move(key)] = std::move(order);
  known.actions += actions;
  return made;
}

} // namespace pipec::plan
