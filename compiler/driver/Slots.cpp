//===- Slots.cpp - which buffer a microbatch uses -------------------------===//
#include "compiler/driver/Slots.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

namespace pipec {
namespace {

using schedule::Action;
using schedule::Kind;

/// One region: slots are reused in the order in which they became free, so that
/// a message for the next microbatch finds its slot as early as possible.
class Region {
public:
  Region(PipecRegion id, int count) : id(id), count(count) {
    for (int i = 0; i < count; ++i)
      idle.push_back(i);
  }
  int take(int microbatch) {
    int slot = idle.front();
    idle.pop_front();
    return held[microbatch] = slot;
  }
  int of(int microbatch) const { return held.at(microbatch); }
  void release(int microbatch) {
    idle.push_back(held.at(microbatch));
    held.erase(microbatch);
  }

  const PipecRegion id;
  const int count;

private:
  std::deque<int> idle;
  std::map<int, int> held; ///< slots by microbatch
};

/// Most microbatches between an action of a kind in `from` and one in `to`.
int mostHeld(const std::vector<Action> &order, int stage,
             const std::set<Kind> &from, const std::set<Kind> &to) {
  int live = 0, most = 0;
  for (const Action &action : order) {
    if (action.stage != stage)
      continue;
    if (from.count(action.kind))
      most = std::max(most, ++live);
    if (to.count(action.kind))
      --live;
  }
  return most;
}

} // namespace

SlotPlan assignSlots(const std::vector<Action> &order, int stage,
                     const SlotRequest &request) {
  int local = std::count_if(order.begin(), order.end(), [&](const Action &a) {
    return a.stage == stage && a.kind == Kind::F;
  });
  std::set<Kind> forward{Kind::F}, backward{Kind::B, Kind::I},
      last{request.splitBackward ? Kind::W : Kind::B};
  const bool forwardOnly =
      std::all_of(order.begin(), order.end(),
                  [](const Action &a) { return a.kind == Kind::F; });
  int inFlight = forwardOnly ? 1 : mostHeld(order, stage, forward, last);
  int backwards = mostHeld(order, stage, backward, last);
  auto limited = [&](int n) { return std::clamp(n, 1, std::max(1, local)); };

  Region in(PIPEC_IN,
            limited(inFlight + request.receivesForward + request.spare)),
      stash(PIPEC_STASH, limited(inFlight)), out(PIPEC_OUT, limited(2)),
      gradIn(PIPEC_GRAD_IN,
             limited(backwards + request.receivesBackward + request.spare)),
      gradOut(PIPEC_GRAD_OUT, limited(2)),
      wstash(PIPEC_WSTASH, limited(backwards));

  SlotPlan plan;
  plan.used.reserve(order.size());
  for (const Action &action : order) {
    auto &used = plan.used.emplace_back();
    if (action.stage != stage)
      continue;
    int k = action.microbatch;
    auto note = [&](Region &region, bool take) {
      used.set(region.id, take ? region.take(k) : region.of(k));
    };
    bool isForward = action.kind == Kind::F;
    note(in, isForward);
    note(stash, isForward);
    if (isForward) {
      note(out, true);
      out.release(k); // a message's slot: in turn, the runtime waits for it
      if (forwardOnly)
        for (Region *region : {&in, &stash})
          region->release(k);
      continue;
    }
    bool first = action.kind != Kind::W;
    note(gradIn, first);
    if (request.splitBackward)
      note(wstash, first);
    if (first) {
      note(gradOut, true);
      gradOut.release(k);
    }
    if (last.count(action.kind))
      for (Region *region : {&in, &stash, &gradIn})
        region->release(k);
    if (request.splitBackward && action.kind == Kind::W)
      wstash.release(k);
  }
  for (Region *region : {&in, &stash, &out, &gradIn, &gradOut, &wstash})
    plan.counts.set(region->id, region->count);
  return plan;
}

} // namespace pipec
