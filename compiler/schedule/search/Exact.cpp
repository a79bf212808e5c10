//===- Exact.cpp - proven optima of small problems ------------------------===//
//
// Depth first over partial schedules that grow in time (Giffler and Thompson's
// active schedules): of all tasks that could come next, take the device of the
// one that would end first, and branch over the tasks that device could run
// before that end. A task that takes memory could also be left to wait although
// it fits, to keep the room for a later one; that is one more branch. Tasks of
// a row run in microbatch order, which loses nothing.
//
// A device's first task is the first microbatch's forward at its first stage,
// fed by the first task of the device before: as soon as possible, it starts at
// the same time in every order. So the span is the makespan on clocks that
// start there, and the same search proves it.
//
// A partial schedule is cut off when its bound reaches the best known cost, or
// when the same tasks were already done with no clock later (dominance). Both
// rest on the heads: the earliest time at which each row can go on.
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
        best(incumbent), done(problem.rows.size(), 0), devices(problem.devices),
        arrival(problem.taskIds(), kNever), order(problem.devices) {
    layOut();
  }

  Exact run() {
    visit();
    found.proven = !gaveUp;
    found.nodes = nodes;
    return std::move(found);
  }

private:
  struct Device {
    double freeAt = 0, held = 0;
    uint64_t waiting = 0; ///< its rows, by place in rowsOf, not to come next
  };
  /// A task that could come next.
  struct Choice {
    int row;
    double start, end;
  };
  using Heads = std::vector<double>; ///< by row; kNever: the row is done

  void layOut();
  void visit();
  void branch(const Choice &choice);
  bool next(int row, Choice &choice) const;
  std::vector<Choice> choices(bool &mayWait) const;
  Heads heads() const;
  double bound(const Heads &at) const;
  bool dominated(const Heads &at);
  double cost() const;

  bool isDone(int row) const { return done[row] == p.microbatches; }
  bool waits(int row) const {
    return devices[p.rows[row].device].waiting & uint64_t(1) << placeOf[row];
  }
  bool fits(int row) const {
    const Row &r = p.rows[row];
    return r.memory <= 0 || p.fits(devices[r.device].held + r.memory, r.device);
  }
  /// When microbatch k of a row with that head can have run.
  double ended(const Heads &at, int row, int k) const {
    return at[row] + (k - done[row] + 1) * p.rows[row].time;
  }

  const Problem &p;
  const long long mostNodes;
  const double floor;
  double best;
  long long nodes = 0;
  bool gaveUp = false;

  std::vector<int> placeOf;  ///< row -> its place among its device's rows
  std::vector<int> source;   ///< row -> the one that feeds it, or -1
  std::vector<int> flow;     ///< rows, each behind those it depends on
  std::vector<double> entry; ///< device -> where its clock starts
  std::vector<double> tail;  ///< row -> least cost beyond a task's end

  std::vector<int> done; ///< by row
  std::vector<Device> devices;
  std::vector<double> arrival; ///< by task; of those that are made
  int placed = 0;
  Order order;
  Exact found;
  /// Done counts -> clocks of states seen.
  std::unordered_map<std::string, std::vector<std::vector<double>>> seen;
  static constexpr std::size_t kMostSeen = 400000, kMostOfOne = 64;
};

void BranchAndBound::layOut() {
  placeOf.resize(p.rows.size());
  for (const auto &list : p.rowsOf)
    for (std::size_t i = 0; i < list.size(); ++i)
      placeOf[list[i]] = static_cast<int>(i);
  source.assign(p.rows.size(), -1);
  for (std::size_t row = 0; row < p.rows.size(); ++row)
    if (p.rows[row].feeds >= 0)
      source[p.rows[row].feeds] = static_cast<int>(row);
  for (int s = 0; s < p.stages; ++s)
    flow.push_back(3 * s);
  for (int s = p.stages; s-- > 0;)
    flow.insert(flow.end(), {3 * s + 1, 3 * s + 2});
  entry.assign(p.devices, p.metric == Metric::Span ? kNever : 0);
  double at = 0;
  for (int s = 0; s < p.stages; ++s) {
    const Row &row = p.rows[3 * s];
    entry[row.device] = std::min(entry[row.device], at);
    at += row.time + row.hop;
  }
  tail.resize(p.rows.size());
  for (auto row = flow.rbegin(); row != flow.rend(); ++row) {
    const Row &r = p.rows[*row];
    tail[*row] = -entry[r.device];
    if (r.feeds >= 0)
      tail[*row] =
          std::max(tail[*row], r.hop + p.rows[r.feeds].time + tail[r.feeds]);
    if (*row % 3 < 2)
      tail[*row] = std::max(tail[*row], p.rows[*row + 1].time + tail[*row + 1]);
  }
}

/// Fills in when the row's next task could run; false when it cannot yet.
bool BranchAndBound::next(int row, Choice &choice) const {
  const Row &r = p.rows[row];
  int k = done[row];
  if (isDone(row) || (r.after >= 0 && done[r.after] <= k) ||
      (r.waits && done[source[row]] <= k) || !fits(row))
    return false;
  double ready = r.waits ? arrival[p.task(row, k)] : 0;
  choice = {row, std::max(ready, devices[r.device].freeAt), 0};
  choice.end = choice.start + r.time;
  return true;
}

/// The tasks to branch over, shortest start first, all of one device.
std::vector<BranchAndBound::Choice>
BranchAndBound::choices(bool &mayWait) const {
  Choice first{-1, 0, kNever}, c;
  for (int row = 0; row < static_cast<int>(p.rows.size()); ++row)
    if (!waits(row) && next(row, c) && c.end < first.end)
      first = c;
  std::vector<Choice> list;
  mayWait = false;
  if (first.row < 0)
    return list;
  for (int row : p.rowsOf[p.rows[first.row].device])
    if (!waits(row) && next(row, c) &&
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

/// Before a row's next task: the device gets free, what it needs is made (each
/// missing task takes its time), and where it does not fit, or must wait,
/// another task of the device runs.
BranchAndBound::Heads BranchAndBound::heads() const {
  Heads at(p.rows.size(), kNever);
  std::vector<double> freed(p.devices, kNever), passed(p.devices, kNever);
  for (bool blocked : {false, true}) {
    for (int row : flow) {
      const Row &r = p.rows[row];
      int k = done[row];
      if (isDone(row))
        continue;
      double t = devices[r.device].freeAt;
      if (r.after >= 0 && done[r.after] <= k)
        t = std::max(t, ended(at, r.after, k));
      if (int from = source[row]; from >= 0)
        t = std::max(t, done[from] > k ? arrival[p.task(row, k)]
                                       : ended(at, from, k) + p.rows[from].hop);
      if (blocked && !fits(row))
        t = std::max(t, freed[r.device]);
      if (blocked && waits(row))
        t = std::max(t, passed[r.device]);
      at[row] = t;
    }
    for (std::size_t row = 0; !blocked && row < p.rows.size(); ++row) {
      const Row &r = p.rows[row];
      double end = at[row] + r.time;
      if (r.memory < 0)
        freed[r.device] = std::min(freed[r.device], end);
      if (!waits(static_cast<int>(row)))
        passed[r.device] = std::min(passed[r.device], end);
    }
  }
  return at;
}

/// For rows of a device that start no earlier than one and end no nearer to the
/// finish than another: their first start, their work, their shortest tail.
double BranchAndBound::bound(const Heads &at) const {
  double result = floor;
  for (const auto &list : p.rowsOf)
    for (int a : list)
      for (int b : list) {
        if (isDone(a) || isDone(b) || at[b] < at[a] || tail[a] < tail[b])
          continue;
        double work = 0;
        for (int row : list)
          if (!isDone(row) && at[row] >= at[a] && tail[row] >= tail[b])
            work += (p.microbatches - done[row]) * p.rows[row].time;
        result = std::max(result, at[a] + work + tail[b]);
      }
  return result;
}

/// A clock is when something can happen, which may be later than it is free to.
bool BranchAndBound::dominated(const Heads &at) {
  std::string key;
  for (int n : done) {
    key += static_cast<char>(n & 255);
    key += static_cast<char>(n >> 8);
  }
  for (const Device &d : devices)
    key.append(reinterpret_cast<const char *>(&d.waiting), sizeof d.waiting);
  std::vector<double> clocks;
  for (int d = 0; d < p.devices; ++d) {
    double from = kNever;
    for (int row : p.rowsOf[d])
      from = std::min(from, at[row]);
    clocks.push_back(from < kNever ? from : devices[d].freeAt);
  }
  for (std::size_t row = 0; row < p.rows.size(); ++row)
    for (int k = done[row]; source[row] >= 0 && k < done[source[row]]; ++k)
      clocks.push_back(std::max(arrival[p.task(static_cast<int>(row), k)],
                                at[row] + (k - done[row]) * p.rows[row].time));
  auto &states = seen[key];
  for (const auto &other : states)
    if (std::equal(clocks.begin(), clocks.end(), other.begin(),
                   [](double mine, double theirs) { return theirs <= mine; }))
      return true;
  if (seen.size() < kMostSeen && states.size() < kMostOfOne)
    states.push_back(std::move(clocks));
  return false;
}

double BranchAndBound::cost() const {
  double result = 0;
  for (int d = 0; d < p.devices; ++d)
    result = std::max(result, devices[d].freeAt - entry[d]);
  return result;
}

void BranchAndBound::branch(const Choice &choice) {
  const Row &r = p.rows[choice.row];
  Device &device = devices[r.device];
  const Device before = device;
  Task t = p.task(choice.row, done[choice.row]++);
  device.freeAt = choice.end;
  device.held += r.memory;
  device.waiting = 0;
  ++placed;
  order[r.device].push_back(t);
  if (r.feeds >= 0)
    arrival[p.task(r.feeds, p.microbatchOf(t))] = choice.end + r.hop;
  visit();
  order[r.device].pop_back();
  --placed;
  --done[choice.row];
  device = before;
}

void BranchAndBound::visit() {
  if (gaveUp || ++nodes > mostNodes) {
    gaveUp = true;
    return;
  }
  constexpr double kBetter = 1 - 1e-9;
  if (placed == p.tasks()) {
    if (cost() >= best * kBetter)
      return;
    best = cost();
    found.order = order;
    found.result = evaluate(p, order);
    return;
  }
  Heads at = heads();
  if (bound(at) >= best * kBetter || dominated(at))
    return;
  bool mayWait;
  std::vector<Choice> list = choices(mayWait);
  for (const Choice &choice : list) {
    branch(choice);
    if (gaveUp)
      return;
  }
  if (!mayWait)
    return;
  Device &device = devices[p.rows[list.front().row].device];
  uint64_t before = device.waiting;
  device.waiting |= uint64_t(1) << placeOf[list.front().row];
  visit();
  device.waiting = before;
}

} // namespace

Exact solveExactly(const Problem &problem, double incumbent,
                   long long mostNodes) {
  return BranchAndBound(problem, incumbent, mostNodes).run();
}

Bracket bracket(const Problem &problem, double incumbent, long long mostNodes) {
  constexpr int kHalvings = 6;
  Bracket result;
  result.bound = lowerBound(problem);
  double best = incumbent, reach = incumbent;
  for (int i = 0; i <= kHalvings && result.bound < best * (1 - 1e-9); ++i) {
    double target = i == 0 ? best : 0.5 * (result.bound + reach);
    Exact exact = solveExactly(problem, target, mostNodes);
    result.best.nodes += exact.nodes;
    const bool better = !exact.order.empty();
    if (better) {
      best = reach = exact.result.cost(problem.metric);
      result.best.order = std::move(exact.order);
      result.best.result = exact.result;
    }
    if (exact.proven)
      result.bound = better ? best : target;
    else if (!better)
      reach = target;
  }
  result.best.proven = result.bound >= best * (1 - 1e-9);
  return result;
}

} // namespace pipec::schedule::search
