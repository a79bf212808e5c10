//===- Block.cpp - cost-aware building blocks -----------------------------===//
//
// The published V-Half and V-Min repeat a block that is free of collisions when
// all times are equal. Here the block is made for the times at hand: a modulo
// reservation table per device, as in software pipelining. The longer the
// period, the easier the fit and the shorter activations live; squeezing the
// unrolled order (Justify.h) takes slack out again.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/search/Block.h"

#include <algorithm>
#include <cmath>

namespace pipec::schedule::search {

namespace {

/// What is taken of each period of a device.
class Table {
public:
  explicit Table(double period) : period(period) {}

  /// The first time from `at` on when `time` fits, or -1. No gap longer than 0
  /// and shorter than `least` stays beside it.
  double place(double at, double time, double least) {
    double latest = at + 2 * period;
    // Each step ends at a border of a taken interval; two rounds visit them
    // all.
    for (int step = 0; at < latest && step < kSteps; ++step) {
      double move = conflict(at, time, least);
      if (move <= 0) {
        taken.push_back({wrap(at), time});
        return at;
      }
      at += move;
    }
    return -1;
  }

private:
  struct Interval {
    double begin, time;
  };
  static constexpr int kSteps = 256;

  double wrap(double t) const {
    double phase = std::fmod(t, period);
    return phase < 0 ? phase + period : phase;
  }

  /// How far to move on, 0 when `at` will do.
  double conflict(double at, double time, double least) const {
    double slack = 1e-9 * period, phase = wrap(at);
    for (const Interval &i : taken) {
      double ahead = wrap(i.begin - phase);
      if (ahead > period - slack)
        ahead = 0;
      if (ahead < time - slack)
        return ahead + i.time;
      double since = period - ahead - i.time; // from its end to here
      if (since < -slack)
        return -since;
      double until = ahead - time; // from our end to it
      if (since > slack && since < least - slack)
        return least - since;
      if (until > slack && until < least - slack)
        return until;
    }
    return 0;
  }

  double period;
  std::vector<Interval> taken;
};

class Builder {
public:
  Builder(const Problem &problem, const BlockOptions &options)
      : p(problem), options(options), state(options.jitter) {
    block.period = options.period * p.work / p.microbatches * (1 + 1e-12);
    block.at.assign(p.rows.size(), 0);
    tables.assign(p.devices, Table(block.period));
  }

  Block run() {
    double at = 0;
    bool fits = true;
    for (int s = 0; fits && s < p.stages; ++s)
      fits = walk(3 * s, at);
    at += options.turn * block.period;
    for (int s = p.stages; fits && s-- > 0;)
      fits = walk(3 * s + 1, at);
    for (int s = p.stages; fits && s-- > 0;) {
      at = block.at[3 * s + 1] + p.rows[3 * s + 1].time;
      fits = put(3 * s + 2, at, 0);
    }
    if (!fits)
      return {};
    steadyPeaks();
    return std::move(block);
  }

private:
  bool walk(int row, double &at) {
    const Row &r = p.rows[row];
    double least = options.tidy ? p.rows[row / 3 * 3 + 2].time : 0;
    if (!put(row, at + delay(r.time), least))
      return false;
    at = block.at[row] + r.time * (1 + options.stretch) + r.hop;
    // The last stage turns at once.
    if (r.feeds < 0)
      at = block.at[row] + r.time;
    return true;
  }

  bool put(int row, double at, double least) {
    const Row &r = p.rows[row];
    block.at[row] = tables[r.device].place(at, r.time, least);
    return block.at[row] >= 0;
  }

  /// One task in seven waits a quarter, half or three quarters of its time.
  double delay(double time) {
    if (!options.jitter)
      return 0;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    unsigned r = static_cast<unsigned>(state >> 33);
    return r % 7 ? 0 : time * (r / 7 % 4) / 4;
  }

  void steadyPeaks() {
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
  const BlockOptions &options;
  unsigned long long state;
  Block block;
  std::vector<Table> tables;
};

} // namespace

Block makeBlock(const Problem &problem, const BlockOptions &options) {
  return Builder(problem, options).run();
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

} // namespace pipec::schedule::search
