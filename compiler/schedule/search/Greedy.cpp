//===- Greedy.cpp - list scheduling under memory limits -------------------===//
//
// A forward may only start when enough memory is left for the deeper stages of
// its device: the unoccupied part of their shares. Then the oldest microbatch
// can always go on: everything older is done and freed, everything younger left
// it its room. So no state is a dead end.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/search/Greedy.h"

#include "compiler/schedule/search/Agenda.h"

#include <algorithm>

namespace pipec::schedule::search {

namespace {

class Greedy {
public:
  Greedy(const Problem &problem, const Policy &policy)
      : p(problem), policy(policy), order(p.devices), agenda(p.devices) {}
  Order run();

private:
  struct Stage {
    int next[3] = {0, 0, 0}; ///< microbatch whose turn it is, per kind
    double book[3];          ///< conservative memory: growth is booked at F
    double held = 0;
    double share = 0; ///< memory kept for the stage
  };
  struct Device {
    double freeAt = 0, held = 0;
    bool lastForward = false;
    std::vector<int> stages; ///< descending
  };

  bool prepare();
  void shares();
  void decide(int d, double now);
  void start(int d, int kind, int stage, double now);
  double arrivalOf(int kind, int s) const;
  bool roomFor(const Device &dev, int d, int s) const;
  int better(Policy::Pick pick, int a, int b, int kind) const;
  bool forwardBefore(const Device &dev, int f, int i) const;

  const Problem &p;
  const Policy &policy;
  Order order;
  std::vector<Stage> stages;
  std::vector<Device> devices;
  std::vector<double> arrival; ///< by task
  Agenda agenda;
  double nextEntry = 0, period = 0;
  int placed = 0;
};

bool Greedy::prepare() {
  stages.resize(p.stages);
  devices.resize(p.devices);
  arrival.assign(p.taskIds(), kNever);
  for (int s = p.stages; s-- > 0;) {
    Stage &st = stages[s];
    st.book[0] = p.rows[3 * s].memory;
    for (int kind : {1, 2}) {
      double m = p.rows[3 * s + kind].memory;
      st.book[0] += std::max(0.0, m);
      st.book[kind] = std::min(0.0, m);
    }
    devices[p.rows[3 * s].device].stages.push_back(s);
  }
  for (int d = 0; d < p.devices; ++d) {
    double least = 0;
    for (int s : devices[d].stages)
      least += stages[s].book[0];
    if (!p.fits(least, d))
      return false;
    order[d].reserve(devices[d].stages.size() * 3 * p.microbatches);
    agenda.set(d, 0);
  }
  period = p.work / p.microbatches;
  shares();
  return true;
}

/// In proportion to how long a stage holds an activation: the way to the last
/// stage and back.
void Greedy::shares() {
  std::vector<double> path(p.stages + 1, 0);
  for (int s = p.stages; s-- > 0;) {
    const Row &f = p.rows[3 * s], &i = p.rows[3 * s + 1];
    path[s] = path[s + 1] + f.time + f.hop + i.time + i.hop;
  }
  for (int d = 0; d < p.devices; ++d) {
    double total = 0;
    for (int s : devices[d].stages)
      total += path[s] * stages[s].book[0];
    for (int s : devices[d].stages) {
      double own = stages[s].book[0];
      double part = p.limit[d] < kNever && total > 0
                        ? p.limit[d] * path[s] * own / total
                        : 0;
      stages[s].share = std::max(own, policy.reserve * part);
    }
  }
}

Order Greedy::run() {
  if (!prepare())
    return {};
  for (auto at = agenda.next(); at.time < kNever; at = agenda.next())
    decide(at.device, at.time);
  if (placed != p.tasks())
    return {};
  return std::move(order);
}

double Greedy::arrivalOf(int kind, int s) const {
  int k = stages[s].next[kind];
  if (kind == 0) {
    if (k == p.microbatches)
      return kNever;
    if (s == 0)
      return nextEntry;
  } else if (k == stages[s].next[kind - 1]) {
    return kNever;
  }
  int row = 3 * s + kind;
  return p.rows[row].waits ? arrival[p.task(row, k)] : 0;
}

bool Greedy::roomFor(const Device &dev, int d, int s) const {
  if (p.limit[d] == kNever)
    return true;
  double wanted = dev.held + stages[s].book[0], least = wanted;
  for (int deeper : dev.stages) {
    if (deeper == s)
      break;
    const Stage &st = stages[deeper];
    wanted += std::max(0.0, st.share - st.held);
    least += std::max(0.0, st.book[0] - st.held);
  }
  // Shares may add up to more than the limit: the first microbatch of a stage
  // may enter when the deeper stages keep room for one.
  return p.fits(wanted, d) || (stages[s].held <= 0 && p.fits(least, d));
}

/// The preferred of two stages, a deeper than b.
int Greedy::better(Policy::Pick pick, int a, int b, int kind) const {
  if (a < 0)
    return b;
  switch (pick) {
  case Policy::Pick::Deepest:
    return a;
  case Policy::Pick::Shallowest:
    return b;
  case Policy::Pick::Oldest:
    break;
  }
  int ka = stages[a].next[kind], kb = stages[b].next[kind];
  // On a tie, the one nearer the end of its way.
  return ka != kb ? (ka < kb ? a : b) : (kind == 0 ? a : b);
}

bool Greedy::forwardBefore(const Device &dev, int f, int i) const {
  switch (policy.between) {
  case Policy::Between::BackwardFirst:
    return false;
  case Policy::Between::ForwardFirst:
    return true;
  case Policy::Between::Alternate:
    return !dev.lastForward;
  case Policy::Between::Oldest:
    break;
  }
  return stages[f].next[0] < stages[i].next[1];
}

void Greedy::decide(int d, double now) {
  Device &dev = devices[d];
  int f = -1, i = -1, w = -1;
  double nextI = kNever, next = kNever;
  for (int s : dev.stages) {
    double in = arrivalOf(1, s);
    if (in <= now)
      i = better(policy.backward, i, s, 1);
    else
      nextI = std::min(nextI, in);
    in = arrivalOf(0, s);
    if (in < kNever && roomFor(dev, d, s)) {
      if (in <= now)
        f = better(policy.forward, f, s, 0);
      else
        next = std::min(next, in);
    }
    const Stage &st = stages[s];
    if (st.next[2] < st.next[1] && (w < 0 || st.next[2] < stages[w].next[2]))
      w = s;
  }
  next = std::min(next, nextI);
  if (f >= 0 && i < 0 && policy.patience > 0 &&
      nextI - now <= policy.patience * p.rows[3 * f].time)
    f = -1;
  if (f >= 0 && (i < 0 || forwardBefore(dev, f, i)))
    return start(d, 0, f, now);
  if (i >= 0)
    return start(d, 1, i, now);
  if (w >= 0 && next - now >= policy.fill * p.rows[3 * w + 2].time)
    return start(d, 2, w, now);
  agenda.set(d, next);
}

void Greedy::start(int d, int kind, int stage, double now) {
  Stage &st = stages[stage];
  Device &dev = devices[d];
  int k = st.next[kind]++;
  const Row &row = p.rows[3 * stage + kind];
  double end = dev.freeAt = now + row.time;
  order[d].push_back(p.task(3 * stage + kind, k));
  ++placed;
  dev.held += st.book[kind];
  st.held += st.book[kind];
  if (kind < 2)
    dev.lastForward = kind == 0;
  agenda.set(d, end);
  if (kind == 0 && stage == 0 && policy.pace > 0)
    nextEntry = std::max(end, nextEntry + policy.pace * period);
  if (row.feeds < 0)
    return;
  int to = p.rows[row.feeds].device;
  arrival[p.task(row.feeds, k)] = end + row.hop;
  agenda.sooner(to, std::max(end + row.hop, devices[to].freeAt));
}

} // namespace

Order greedy(const Problem &problem, const Policy &policy) {
  return Greedy(problem, policy).run();
}

using Between = Policy::Between;
using Pick = Policy::Pick;

/// Found by a cover over some hundred instances (sizes, costs, limits, both
/// metrics): each brings the best result after improvement somewhere, the first
/// ones most often.
constexpr Policy kPolicies[] = {
    {Between::Alternate, Pick::Oldest, Pick::Oldest, 0, 1, 0, 0},
    {Between::ForwardFirst, Pick::Oldest, Pick::Deepest, 0, 0, 0, 1},
    {Between::Alternate, Pick::Oldest, Pick::Deepest, 0, 0.5, 0, 0.5},
    {Between::BackwardFirst, Pick::Shallowest, Pick::Oldest, 0, 1, 0, 0.5},
    {Between::BackwardFirst, Pick::Oldest, Pick::Deepest, 0, 0.5, 0, 0.8},
    {Between::BackwardFirst, Pick::Oldest, Pick::Oldest, 0, 1, 0, 0},
    {Between::ForwardFirst, Pick::Oldest, Pick::Deepest, 0, 0, 0, 0.5},
    {Between::Alternate, Pick::Oldest, Pick::Oldest, 1, 1, 0, 0.8},
    {Between::ForwardFirst, Pick::Oldest, Pick::Oldest, 0, 0, 0, 0.8},
    {Between::Alternate, Pick::Oldest, Pick::Oldest, 0, 0, 0, 1},
    {Between::BackwardFirst, Pick::Shallowest, Pick::Deepest, 0, 0, 0, 0.5},
    {Between::BackwardFirst, Pick::Shallowest, Pick::Deepest, 0, 0, 0, 0.8},
    {Between::BackwardFirst, Pick::Shallowest, Pick::Oldest, 0, 0, 0, 1},
    {Between::BackwardFirst, Pick::Shallowest, Pick::Oldest, 1, 0, 0, 0},
    {Between::Alternate, Pick::Oldest, Pick::Oldest, 0, 0, 0, 0.5},
    {Between::ForwardFirst, Pick::Shallowest, Pick::Oldest, 1, 1, 0, 1},
    {Between::ForwardFirst, Pick::Shallowest, Pick::Deepest, 0, 1, 0, 0.5},
};

std::span<const Policy> policies() { return kPolicies; }

} // namespace pipec::schedule::search
