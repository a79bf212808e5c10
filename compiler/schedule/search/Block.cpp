//===- Block.cpp - cost-aware building blocks -----------------------------===//
//
// The published V-Half and V-Min repeat a block that is free of collisions when
// all times are equal. Here the block is made for the times at hand: a modulo
// reservation table per device, as in software pipelining, filled by a beam
// search. What an activation costs is how long it is held, so a task that waits
// costs its wait times what the devices hold by then. The longer the period,
// the easier the fit and the shorter activations live; squeezing the unrolled
// order (Justify.h) takes slack out again.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/search/Block.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace pipec::schedule::search {

namespace {

struct Interval {
  double begin, time; ///< begin within the period
};

/// A walk up to some task.
struct Partial {
  double cost = 0;             ///< waiting times memory held
  double at = 0;               ///< end of its last task
  std::vector<Interval> taken; ///< by device, as many as it has rows
  std::vector<int> count;      ///< by device
  std::vector<double> begin;   ///< by row
};

class Beam {
public:
  Beam(const Problem &problem, const BlockOptions &options)
      : p(problem), width(options.width),
        period(options.period * p.work / p.microbatches * (1 + 1e-12)),
        slack(1e-9 * period), left(p.devices, 0), least(p.devices, kNever) {
    for (const auto &rows : p.rowsOf)
      most = std::max(most, static_cast<int>(rows.size()));
    for (int row = 0; row < 3 * p.stages; ++row)
      if (row % 3 < 2) {
        const Row &r = p.rows[row];
        ++left[r.device];
        if (r.time > 0)
          least[r.device] = std::min(least[r.device], r.time);
      }
  }

  std::vector<Block> run() {
    Partial none;
    none.taken.resize(most * p.devices);
    none.count.resize(p.devices);
    none.begin.resize(p.rows.size());
    beam.push_back(std::move(none));
    for (int s = 0; s < p.stages; ++s)
      step(3 * s);
    for (int s = p.stages; s-- > 0;)
      step(3 * s + 1);
    std::vector<Block> blocks;
    for (Partial &walk : beam)
      if (weights(walk)) {
        blocks.push_back({period, std::move(walk.begin), {}});
        steadyPeaks(blocks.back());
      }
    return blocks;
  }

private:
  struct Choice {
    double cost, at;
    int from;
  };

  double wrap(double t) const {
    double phase = t - std::floor(t / period) * period;
    return phase >= period ? phase - period : phase;
  }

  /// How far a task must move on from `at`, 0 when it can stay.
  double conflict(const Partial &walk, int d, double at, double time) const {
    const double phase = wrap(at);
    const Interval *taken = &walk.taken[most * d];
    for (int i = 0; i < walk.count[d]; ++i) {
      double ahead = taken[i].begin - phase;
      if (ahead < 0)
        ahead += period;
      if (ahead > period - slack)
        ahead = 0;
      if (ahead < time - slack)
        return ahead + taken[i].time;
      if (double over = ahead + taken[i].time - period; over > slack)
        return over;
    }
    return 0;
  }

  /// The first time from `at` on when the task fits, or -1.
  double firstFit(const Partial &walk, int d, double at, double time) const {
    // Each move ends at a border of a taken interval; two rounds visit all.
    for (int move = 0; move <= 2 * most; ++move) {
      double by = conflict(walk, d, at, time);
      if (by <= 0)
        return at;
      at += by;
    }
    return -1;
  }

  /// The times to try: the first one possible, and those next to other tasks
  /// or as far from them as a weight gradient is long.
  void candidates(const Partial &walk, int row, double from) {
    constexpr std::size_t kBranches = 3;
    const Row &r = p.rows[row];
    const double weight = p.rows[row / 3 * 3 + 2].time;
    times.clear();
    auto take = [&](double at) {
      for (double other : times)
        if (std::abs(other - at) < 10 * slack)
          return;
      times.push_back(at);
    };
    if (double at = firstFit(walk, r.device, from, r.time); at >= 0)
      take(at);
    const double phase = wrap(from);
    for (int i = 0; i < walk.count[r.device]; ++i) {
      const Interval &other = walk.taken[most * r.device + i];
      const double behind = other.begin + other.time;
      const double before = other.begin - r.time;
      for (double at : {behind, before, behind + weight, before - weight}) {
        double wait = wrap(at - phase);
        if (wait < 0.75 * period &&
            conflict(walk, r.device, from + wait, r.time) <= 0)
          take(from + wait);
      }
    }
    std::sort(times.begin(), times.end());
    if (times.size() > kBranches)
      times.resize(kBranches);
  }

  /// Whether the tasks that are still to come have gaps to go to.
  bool roomLeft(const Partial &walk, int d) {
    const int n = walk.count[d];
    if (left[d] == 0 || n == 0 || least[d] == kNever)
      return true;
    sorted.assign(&walk.taken[most * d], &walk.taken[most * d] + n);
    std::sort(sorted.begin(), sorted.end(),
              [](auto &a, auto &b) { return a.begin < b.begin; });
    double fit = 0;
    for (int i = 0; i < n; ++i) {
      double next = i + 1 < n ? sorted[i + 1].begin : sorted[0].begin + period;
      double gap = next - sorted[i].begin - sorted[i].time;
      fit += std::floor((gap + 10 * slack) / least[d]);
    }
    return fit >= left[d];
  }

  void put(Partial &walk, int row, double at) const {
    const Row &r = p.rows[row];
    walk.begin[row] = at;
    walk.taken[most * r.device + walk.count[r.device]++] = {wrap(at), r.time};
  }

  void step(int row) {
    const Row &r = p.rows[row];
    --left[r.device];
    choices.clear();
    for (std::size_t i = 0; i < beam.size(); ++i) {
      const double from = beam[i].at + hop;
      candidates(beam[i], row, from);
      for (double at : times)
        choices.push_back(
            {beam[i].cost + (at - from) * held, at, static_cast<int>(i)});
    }
    std::sort(choices.begin(), choices.end(), [](auto &a, auto &b) {
      return std::tie(a.cost, a.from, a.at) < std::tie(b.cost, b.from, b.at);
    });
    next.clear();
    for (const Choice &c : choices) {
      if (static_cast<int>(next.size()) == width)
        break;
      const double end = c.at + r.time;
      auto same = [&](const Partial &other) {
        return std::abs(other.cost - c.cost) < slack &&
               std::abs(other.at - end) < slack;
      };
      if (std::any_of(next.begin(), next.end(), same))
        continue;
      next.push_back(beam[c.from]);
      Partial &walk = next.back();
      put(walk, row, c.at);
      walk.cost = c.cost;
      walk.at = end;
      if (!roomLeft(walk, r.device))
        next.pop_back();
    }
    beam.swap(next);
    held += row % 3 ? std::min(0.0, r.memory) : std::max(0.0, r.memory);
    hop = r.feeds >= 0 ? r.hop : 0;
  }

  bool weights(Partial &walk) const {
    for (int s = p.stages; s-- > 0;) {
      const int input = 3 * s + 1, row = 3 * s + 2;
      double at = walk.begin[input] + p.rows[input].time;
      at = firstFit(walk, p.rows[row].device, at, p.rows[row].time);
      if (at < 0)
        return false;
      put(walk, row, at);
    }
    return true;
  }

  void steadyPeaks(Block &block) const {
    for (int d = 0; d < p.devices; ++d) {
      // Far into the steady state: a row that starts n periods late has run n
      // times less often.
      double held = 0;
      std::vector<std::pair<double, double>> events;
      for (int row : p.rowsOf[d]) {
        double periods = std::floor(block.at[row] / block.period);
        held -= periods * p.rows[row].memory;
        events.push_back(
            {block.at[row] - periods * block.period, p.rows[row].memory});
      }
      std::sort(events.begin(), events.end());
      double peak = held;
      for (auto [phase, change] : events)
        peak = std::max(peak, held += change);
      block.peak.push_back(peak);
    }
  }

  const Problem &p;
  const int width;
  const double period, slack;
  int most = 0;
  std::vector<int> left;     ///< by device, tasks that have no place yet
  std::vector<double> least; ///< by device, the shortest of them
  double held = 0, hop = 0;
  std::vector<Partial> beam, next;
  std::vector<Choice> choices;
  std::vector<double> times;
  std::vector<Interval> sorted;
};

} // namespace

std::vector<Block> makeBlocks(const Problem &problem,
                              const BlockOptions &options) {
  return Beam(problem, options).run();
}

double blockEffort(const Problem &problem, const BlockOptions &options) {
  constexpr double kPerTask = 25; // measured, in visits of Justify.h
  return kPerTask * options.width * 2 * problem.stages;
}

Order unroll(const Problem &p, const Block &block) {
  Order order(p.devices);
  std::vector<std::pair<double, Task>> tasks;
  for (int d = 0; d < p.devices; ++d) {
    tasks.clear();
    for (int row : p.rowsOf[d])
      for (int k = 0; k < p.microbatches; ++k)
        tasks.push_back({block.at[row] + k * block.period, p.task(row, k)});
    std::sort(tasks.begin(), tasks.end());
    for (auto [at, task] : tasks)
      order[d].push_back(task);
  }
  return order;
}

Order fittingBlock(const Problem &p, const BlockOptions &options) {
  for (const Block &block : makeBlocks(p, options)) {
    bool fits = true;
    for (int d = 0; d < p.devices; ++d)
      fits = fits && p.fits(block.peak[d], d);
    if (fits)
      return unroll(p, block);
  }
  return {};
}

} // namespace pipec::schedule::search
