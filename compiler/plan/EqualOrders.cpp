#include "compiler/plan/EqualOrders.h"

#include <cassert>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

namespace pipec::plan {

namespace {

using Key = std::tuple<std::string, int, int, int, int, std::vector<int>>;

/// One for all models: an order depends on its sizes alone.
struct Kept {
  std::mutex mutex;
  std::map<Key, schedule::Schedule> orders;
  size_t actions = 0;
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
  // Enough for one of 1,024 devices, two stages each and 512 microbatches: it
  // takes seconds, and is asked for many times.
  constexpr size_t kMostActions = size_t(1) << 23;
  Key key{schedule,    size.devices, size.microbatches,
          size.chunks, size.slices,  size.replicas};
  Kept &known = kept();
  std::lock_guard lock(known.mutex);
  if (auto it = known.orders.find(key); it != known.orders.end())
    return it->second;
  schedule::Schedule order = schedule::generate(schedule, size);
  const size_t actions = actionsOf(order);
  if (actions > kMostActions)
    return order;
  if (known.actions + actions > kMostActions)
    known.orders.clear(), known.actions = 0;
  known.actions += actions;
  return known.orders.emplace(std::move(key), std::move(order)).first->second;
}

} // namespace pipec::plan
