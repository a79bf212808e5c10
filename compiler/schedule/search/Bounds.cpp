//===- Bounds.cpp - what no order can beat --------------------------------===//
//
// For one device, until the first input gradient can arrive at time R it can
// only run forwards, and of these no more than memory holds. So of [0, R] at
// most min(R - A, forwards that fit) is used, where A is when the first
// microbatch can arrive. With time reversed the same holds for the end: before
// the first forward (in reversed time) only weight and input gradients run, of
// no more microbatches than fit. When not all forwards fit in memory together,
// the first input gradient comes before the last forward; then the two idle
// times lie in different parts of the schedule and add up.
//
// Memory is held over time, too: an activation at least from its forward to its
// input gradient, which is the way to the last stage and back. A device that
// never holds more than its limit is busy with holding for at least the sum of
// these, divided by the limit (Little's law), and longer because it starts and
// ends with nothing: memory fills no faster than forwards run.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/search/Bounds.h"

#include <algorithm>
#include <cmath>

namespace pipec::schedule::search {

namespace {

/// Earliest starts of the first task of each row, forwards or in reversed time.
std::vector<double> earliest(const Problem &p, const std::vector<Row> &rows) {
  std::vector<double> at(rows.size(), 0);
  auto follow = [&](int row) {
    if (rows[row].after >= 0)
      at[row] =
          std::max(at[row], at[rows[row].after] + rows[rows[row].after].time);
    if (rows[row].feeds >= 0)
      at[rows[row].feeds] = std::max(at[rows[row].feeds],
                                     at[row] + rows[row].time + rows[row].hop);
  };
  bool mirrored = &rows == &p.mirror;
  if (mirrored) {
    for (int s = 0; s < p.stages; ++s)
      follow(3 * s + 2), follow(3 * s + 1);
    for (int s = p.stages; s-- > 0;)
      follow(3 * s);
  } else {
    for (int s = 0; s < p.stages; ++s)
      follow(3 * s);
    for (int s = p.stages; s-- > 0;)
      follow(3 * s + 1), follow(3 * s + 2);
  }
  return at;
}

/// What a device can run before it must wait for `turn` rows' first result.
struct Wait {
  double arrives = kNever; ///< its first task can start
  double turns = kNever;   ///< the first task that gives memory back can
  double most = 0;         ///< time of the tasks that can run before
};

} // namespace

/// Forwards before the first input gradient on device d.
static Wait warmup(const Problem &p, int d, const std::vector<double> &at) {
  Wait wait;
  double work = 0, rate = 0;
  bool bounded = p.limit[d] < kNever, alike = true;
  int first = *std::find_if(p.rowsOf[d].begin(), p.rowsOf[d].end(),
                            [](int row) { return row % 3 == 0; });
  for (int row : p.rowsOf[d]) {
    const Row &r = p.rows[row];
    if (row % 3 == 1)
      wait.turns = std::min(wait.turns, at[row]);
    if (row % 3 != 0)
      continue;
    wait.arrives = std::min(wait.arrives, at[row]);
    work += r.time * p.microbatches;
    bounded = bounded && r.memory > 0;
    if (r.memory > 0)
      rate = std::max(rate, r.time / r.memory);
    alike = alike && r.time == p.rows[first].time &&
            r.memory == p.rows[first].memory;
  }
  if (!bounded)
    wait.most = work;
  else if (alike)
    wait.most =
        std::min(work, p.rows[first].time * std::floor((p.limit[d] + p.slack) /
                                                       p.rows[first].memory));
  else
    wait.most = std::min(work, (p.limit[d] + p.slack) * rate);
  return wait;
}

/// In reversed time: weight and input gradients before the first forward.
static Wait drain(const Problem &p, int d, const std::vector<double> &at) {
  Wait wait;
  double work = 0, rate = 0, weights = 0;
  bool bounded = p.limit[d] < kNever;
  for (int row : p.rowsOf[d]) {
    const Row &r = p.mirror[row];
    if (row % 3 == 0) {
      wait.turns = std::min(wait.turns, at[row]);
      continue;
    }
    wait.arrives = std::min(wait.arrives, at[row]);
    work += r.time * p.microbatches;
    // Weight gradients may run far ahead of input gradients.
    bounded = bounded && r.memory >= 0;
    if (row % 3 != 1)
      continue;
    const Row &w = p.mirror[row + 1];
    double both = r.memory + w.memory;
    bounded = bounded && w.memory > 0 && both > 0;
    if (!bounded)
      continue;
    weights = std::max(weights, w.time / w.memory);
    rate = std::max(rate, (r.time + w.time) / both);
  }
  double best = std::max(rate, weights);
  wait.most = bounded ? std::min(work, (p.limit[d] + p.slack) * best) : work;
  return wait;
}

/// From the end of a device's last forward to its own end, by stage of the
/// device: the way to the last stage, back to one of its stages, and its weight
/// gradient. What other devices do after that is no part of its span.
static double wayToOwnEnd(const Problem &p, int d,
                          const std::vector<double> &toLast,
                          const std::vector<double> &back) {
  double least = kNever, most = 0;
  for (int row : p.rowsOf[d]) {
    if (row % 3 == 0)
      least = std::min(least, toLast[row / 3]);
    if (row % 3 == 2)
      most = std::max(most, back[row / 3] + p.rows[row].time);
  }
  return least + most;
}

/// Whether some input gradient must come before the last forward, because not
/// all forwards fit in memory together.
static bool mustInterleave(const Problem &p, int d) {
  double all = 0;
  for (int row : p.rowsOf[d])
    if (row % 3 == 0)
      all += p.rows[row].memory * p.microbatches;
  return p.limit[d] < kNever && all > p.limit[d] + p.slack;
}

namespace {

/// Memory that is held over time below a limit.
struct Holding {
  double limit = 0;
  double held = 0;              ///< memory times time, at least
  double filled = 0, fills = 0; ///< most that a task takes, and per time
  double freed = 0, frees = 0;  ///< most that one gives back, and per time

  /// For how long. Below the limit something is missing while memory fills and
  /// while it empties; both count when `work` is long enough for the two.
  double least(double work) const {
    auto missing = [&](double step, double rate) {
      double rest = std::max(0.0, limit - step);
      return rate > 0 ? rest * rest / (2 * rate) : 0;
    };
    const double before = missing(filled, fills), after = missing(freed, frees);
    const bool apart =
        fills > 0 && frees > 0 && limit / fills + limit / frees <= work;
    return (held + (apart ? before + after : std::max(before, after))) / limit *
           (1 - 1e-9);
  }
};

} // namespace

/// How long a device holds what it cannot help holding; 0 where its memory is
/// not of the kind that forwards take and gradients give back.
static double holding(const Problem &p, int d,
                      const std::vector<double> &toLast,
                      const std::vector<double> &back) {
  const double limit = p.limit[d] + p.slack;
  if (!(limit < kNever) || limit <= 0)
    return 0;
  Holding all{limit}, whole{limit}; // with what waits for W, and without
  double work = 0, size = 0;
  bool alike = true;
  for (int row : p.rowsOf[d]) {
    if (row % 3 != 0)
      continue;
    const Row &f = p.rows[row], &i = p.rows[row + 1], &w = p.rows[row + 2];
    const double kept = f.memory + i.memory, both = i.time + w.time;
    if (f.memory < 0 || i.memory > 0 || w.memory > 0 || kept < -p.slack ||
        kept + w.memory < -p.slack || f.time <= 0 || w.time <= 0)
      return 0;
    alike = alike && f.memory > 0 && (size == 0 || f.memory == size);
    size = f.memory;
    const double way = f.time + toLast[row / 3] + back[row / 3];
    whole.held += p.microbatches * f.memory * way;
    all.held += p.microbatches * std::max(0.0, kept) * w.time;
    work += p.microbatches * (f.time + both);
    all.filled = std::max(all.filled, f.memory);
    all.fills = std::max(all.fills, f.memory / f.time);
    all.freed = std::max({all.freed, -i.memory, -w.memory});
    all.frees = std::max(
        {all.frees, -w.memory / w.time, -(i.memory + w.memory) / both});
    whole.frees = std::max(whole.frees, f.memory / both);
  }
  all.held += whole.held;
  double least = all.least(work);
  if (alike) { // so many at once, none in part
    whole.limit = size * std::floor(limit / size);
    whole.filled = whole.freed = size;
    whole.fills = all.fills;
    if (whole.limit > 0)
      least = std::max(least, whole.least(work));
  }
  return least;
}

/// From a stage's forward to the last one's; from that to an input gradient.
static void waysOf(const Problem &p, std::vector<double> &toLast,
                   std::vector<double> &back) {
  toLast.assign(p.stages, 0);
  back.assign(p.stages, 0);
  for (int s = p.stages - 1; s >= 0; --s) {
    const Row &i = p.rows[3 * s + 1];
    back[s] = i.time;
    if (s + 1 == p.stages)
      continue;
    toLast[s] = toLast[s + 1] + p.rows[3 * s].hop + p.rows[3 * s + 3].time;
    back[s] += back[s + 1] + p.rows[3 * s + 4].hop;
  }
}

double holding(const Problem &p) {
  std::vector<double> toLast, back;
  waysOf(p, toLast, back);
  double most = 0;
  for (int d = 0; d < p.devices; ++d)
    most = std::max(most, holding(p, d, toLast, back));
  return most;
}

double lowerBound(const Problem &p) {
  std::vector<double> forward = earliest(p, p.rows);
  std::vector<double> backward = earliest(p, p.mirror);
  bool span = p.metric == Metric::Span;
  std::vector<double> toLast, back;
  waysOf(p, toLast, back);
  double bound = 0;
  for (int d = 0; d < p.devices; ++d) {
    double work = 0;
    for (int row : p.rowsOf[d])
      work += p.rows[row].time * p.microbatches;
    auto idle = [&](const Wait &w) {
      double from = span ? w.arrives : 0;
      return std::max(w.arrives - from, w.turns - from - w.most);
    };
    const Wait start = warmup(p, d, forward);
    double before = idle(start);
    Wait end = drain(p, d, backward);
    bound = std::max(bound, holding(p, d, toLast, back) +
                                (span ? 0 : start.arrives + end.arrives));
    if (span) {
      end.arrives = 0;
      end.turns = wayToOwnEnd(p, d, toLast, back);
    }
    double after = idle(end);
    bound = std::max(bound,
                     work + (mustInterleave(p, d) ? before + after
                                                  : std::max(before, after)));
  }
  // The way of one microbatch.
  double way = 0;
  for (int row = 0; row < 3 * p.stages; ++row)
    way = std::max(way, forward[row] + p.rows[row].time);
  if (!span)
    bound = std::max(bound, way);
  return bound;
}

} // namespace pipec::schedule::search
