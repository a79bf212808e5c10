//===- Exact.cpp - proven optima of small problems ------------------------===//
//
// Depth first over partial schedules that grow in time (Giffler and Thompson's
// active schedules): of all tasks that could come next, take the device of the
// one that would end first, and branch over the tasks that device could run
// before that end. A task that takes memory could also be left to wait although
// it fits, to keep the room for a later one; that is one more branch. Tasks of
// a row run in microbatch order, which loses nothing.
//
// A partial schedule is cut off when its bound reaches the best known length,
// or when the same tasks were already done with no clock later (dominance).
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/search/Exact.h"

#include "compiler/schedule/search/Bounds.h"

#include <algorithm>
#include <unordered_map>

namespace pipec::schedule::search {

namespace {

class BranchAndBound {
public:
  BranchAndBound(const Problem &problem, double incumbent, long long mostNodes)
      : p(problem), mostNodes(mostNodes), floor(lowerBound(problem)),
        best(incumbent), placeOf(problem.rows.size()) {
    for (const auto &list : p.rowsOf)
      for (std::size_t i = 0; i < list.size(); ++i)
        placeOf[list[i]] = static_cast<int>(i);
  }

  Exact run();

private:
  struct Device {
    double freeAt = 0, held = 0, first = -1, left = 0;
    uint32_t waiting = 0; ///< its rows, by place in rowsOf, not to come next
  };
  struct State {
    std::vector<int> done; ///< by row
    std::vector<Device> devices;
    std::vector<double> arrival; ///< by task
    int placed = 0;
  };
  /// A task that could come next.
  struct Choice {
    int row;
    double start, end;
  };

  void visit(State &s);
  bool next(const State &s, int row, Choice &choice) const;
  std::vector<Choice> choices(const State &s, bool &mayWait) const;
  void place(State &s, const Choice &c);
  double bound(const State &s) const;
  double length(const State &s) const;
  bool dominated(const State &s);
  uint32_t bit(int row) const { return 1u << placeOf[row]; }
  bool waits(const State &s, int row) const {
    return s.devices[p.rows[row].device].waiting & bit(row);
  }
  double clock(const Device &d) const {
    return p.metric == Metric::Span && d.first >= 0 ? d.first : 0;
  }

  const Problem &p;
  const long long mostNodes;
  const double floor;
  double best;
  long long nodes = 0;
  bool gaveUp = false;
  std::vector<int> placeOf; ///< row -> its place among its device's rows
  Order order;
  Exact found;
  /// Done counts -> clocks of states seen.
  std::unordered_map<std::string, std::vector<std::vector<double>>> seen;
  static constexpr std::size_t kMostSeen = 400000;
};

Exact BranchAndBound::run() {
  State root;
  root.done.assign(p.rows.size(), 0);
  root.devices.resize(p.devices);
  root.arrival.assign(p.taskIds(), kNever);
  for (const Row &row : p.rows)
    root.devices[row.device].left += row.time * p.microbatches;
  order.resize(p.devices);
  visit(root);
  found.proven = !gaveUp && p.metric == Metric::Makespan;
  found.nodes = nodes;
  return std::move(found);
}

/// Fills in when the row's next task could run; false when it cannot yet.
bool BranchAndBound::next(const State &s, int row, Choice &choice) const {
  const Row &r = p.rows[row];
  int k = s.done[row];
  if (k == p.microbatches || (r.after >= 0 && s.done[r.after] <= k))
    return false;
  const Device &d = s.devices[r.device];
  if (r.memory > 0 && !p.fits(d.held + r.memory, r.device))
    return false;
  double ready = r.waits ? s.arrival[p.task(row, k)] : 0;
  if (ready == kNever)
    return false;
  choice = {row, std::max(ready, d.freeAt), 0};
  choice.end = choice.start + r.time;
  return true;
}

/// The tasks to branch over, shortest start first, all of one device.
std::vector<BranchAndBound::Choice>
BranchAndBound::choices(const State &s, bool &mayWait) const {
  Choice first{-1, 0, kNever}, c;
  for (int row = 0; row < static_cast<int>(p.rows.size()); ++row)
    if (!waits(s, row) && next(s, row, c) && c.end < first.end)
      first = c;
  std::vector<Choice> list;
  mayWait = false;
  if (first.row < 0)
    return list;
  int device = p.rows[first.row].device;
  for (int row : p.rowsOf[device])
    if (!waits(s, row) && next(s, row, c) &&
        (c.start < first.end || row == first.row))
      list.push_back(c);
  std::sort(list.begin(), list.end(), [](const Choice &a, const Choice &b) {
    return a.start != b.start ? a.start < b.start : a.row < b.row;
  });
  mayWait = p.rows[first.row].memory > 0;
  // The branch that lets `first` wait comes with `first` at the front.
  auto it = std::find_if(list.begin(), list.end(),
                         [&](const Choice &x) { return x.row == first.row; });
  std::rotate(list.begin(), it, it + 1);
  return list;
}

void BranchAndBound::place(State &s, const Choice &c) {
  const Row &r = p.rows[c.row];
  Device &d = s.devices[r.device];
  Task t = p.task(c.row, s.done[c.row]++);
  if (d.first < 0)
    d.first = c.start;
  d.freeAt = c.end;
  d.held += r.memory;
  d.left -= r.time;
  d.waiting = 0;
  ++s.placed;
  order[r.device].push_back(t);
  if (r.feeds >= 0)
    s.arrival[p.task(r.feeds, p.microbatchOf(t))] = c.end + r.hop;
}

double BranchAndBound::length(const State &s) const {
  double result = 0;
  for (const Device &d : s.devices)
    result = std::max(result, d.freeAt - clock(d));
  return result;
}

/// No device ends before its next possible start plus all it has left, and no
/// microbatch before the rest of its way.
double BranchAndBound::bound(const State &s) const {
  std::vector<double> earliest(p.devices, kNever);
  double result = floor;
  Choice c;
  for (std::size_t row = 0; row < p.rows.size(); ++row)
    if (next(s, static_cast<int>(row), c)) {
      double &e = earliest[p.rows[row].device];
      e = std::min(e, c.start);
    }
  for (int d = 0; d < p.devices; ++d) {
    const Device &dev = s.devices[d];
    if (dev.left <= 0)
      continue;
    double from = earliest[d] < kNever ? earliest[d] : dev.freeAt;
    if (p.metric == Metric::Span)
      from = dev.first < 0 ? 0 : from - dev.first;
    result = std::max(result, from + dev.left);
  }
  if (p.metric == Metric::Span)
    return result;
  // Input gradients that are due: the way back to the first stage.
  for (int stage = 0; stage < p.stages; ++stage) {
    int row = 3 * stage + 1, k = s.done[row];
    double at = k < p.microbatches ? s.arrival[p.task(row, k)] : kNever;
    if (at == kNever)
      continue;
    for (int back = stage; back >= 0; --back)
      at += p.rows[3 * back + 1].time + p.rows[3 * back + 1].hop;
    result = std::max(result, at + p.rows[2].time);
  }
  return result;
}

bool BranchAndBound::dominated(const State &s) {
  std::string key;
  for (int n : s.done) {
    key += static_cast<char>(n & 255);
    key += static_cast<char>(n >> 8);
  }
  for (const Device &d : s.devices)
    key.append(reinterpret_cast<const char *>(&d.waiting), sizeof d.waiting);
  std::vector<double> clocks;
  for (const Device &d : s.devices) {
    clocks.push_back(d.freeAt);
    if (p.metric == Metric::Span)
      clocks.push_back(-d.first);
  }
  for (std::size_t row = 0; row < p.rows.size(); ++row)
    if (p.rows[row].waits)
      for (int k = s.done[row]; k < p.microbatches; ++k) {
        double at = s.arrival[p.task(static_cast<int>(row), k)];
        if (at == kNever)
          break;
        clocks.push_back(at);
      }
  auto &states = seen[key];
  for (const auto &other : states) {
    bool noLater = true;
    for (std::size_t i = 0; noLater && i < clocks.size(); ++i)
      noLater = other[i] <= clocks[i];
    if (noLater)
      return true;
  }
  if (seen.size() < kMostSeen && states.size() < 64)
    states.push_back(std::move(clocks));
  return false;
}

void BranchAndBound::visit(State &s) {
  if (gaveUp || ++nodes > mostNodes) {
    gaveUp = true;
    return;
  }
  constexpr double kBetter = 1 - 1e-9;
  if (bound(s) >= best * kBetter)
    return;
  if (s.placed == p.tasks()) {
    best = length(s);
    found.order = order;
    found.result = evaluate(p, order);
    return;
  }
  if (dominated(s))
    return;
  bool mayWait;
  std::vector<Choice> list = choices(s, mayWait);
  for (const Choice &c : list) {
    State child = s;
    place(child, c);
    visit(child);
    order[p.rows[c.row].device].pop_back();
    if (gaveUp)
      return;
  }
  if (!mayWait)
    return;
  State child = s;
  int row = list.front().row;
  child.devices[p.rows[row].device].waiting |= bit(row);
  visit(child);
}

} // namespace

Exact solveExactly(const Problem &problem, double incumbent,
                   long long mostNodes) {
  return BranchAndBound(problem, incumbent, mostNodes).run();
}

} // namespace pipec::schedule::search
