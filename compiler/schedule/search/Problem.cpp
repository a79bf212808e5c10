//===- Problem.cpp - a scheduling problem in flat tables ------------------===//
#include "compiler/schedule/search/Problem.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pipec::schedule::search {

static void fillRows(Problem &p, const Costs &costs,
                     const std::vector<std::vector<int>> &placement) {
  static constexpr Kind kKinds[] = {Kind::F, Kind::I, Kind::W};
  p.rows.resize(3 * p.stages);
  for (int s = 0; s < p.stages; ++s)
    for (int kind = 0; kind < 3; ++kind) {
      Row &row = p.rows[3 * s + kind];
      row.device = placement[s][0];
      row.time = costs.time(kKinds[kind], s, row.device);
      row.memory = costs.memory(kKinds[kind], s, row.device);
      row.after = kind ? 3 * s + kind - 1 : -1;
      int to = kind == 0 ? s + 1 : kind == 1 ? s - 1 : -1;
      if (to < 0 || to >= p.stages)
        continue;
      row.feeds = 3 * to + kind;
      row.hop = costs.hop(std::min(s, to), row.device, placement[to][0]);
    }
  for (const Row &row : p.rows)
    if (row.feeds >= 0)
      p.rows[row.feeds].waits = true;
  // Reversed: a consumer feeds its producer, and local order turns around.
  p.mirror.resize(p.rows.size());
  for (int r = 0; r < 3 * p.stages; ++r) {
    Row &row = p.mirror[r];
    row.device = p.rows[r].device;
    row.time = p.rows[r].time;
    row.memory = -p.rows[r].memory;
    row.after = r % 3 < 2 ? r + 1 : -1;
    row.waits = p.rows[r].feeds >= 0;
  }
  for (int r = 0; r < 3 * p.stages; ++r)
    if (int to = p.rows[r].feeds; to >= 0) {
      p.mirror[to].feeds = r;
      p.mirror[to].hop = p.rows[r].hop;
    }
}

Problem makeProblem(const ScheduleRequest &request,
                    const std::vector<std::vector<int>> &placement) {
  Costs costs = costsOn(placement, request);
  Problem p;
  p.devices = request.devices;
  p.stages = static_cast<int>(placement.size());
  p.microbatches = request.microbatches;
  p.bits = std::bit_width(static_cast<unsigned>(p.microbatches - 1));
  p.metric = request.metric;
  fillRows(p, costs, placement);
  p.rowsOf.resize(p.devices);
  p.residue.assign(p.devices, 0);
  p.limit = costs.limit;
  p.limit.resize(p.devices, kNever);
  std::vector<double> work(p.devices, 0), all(p.devices, 0);
  for (int r = 0; r < 3 * p.stages; ++r) {
    const Row &row = p.rows[r];
    p.rowsOf[row.device].push_back(r);
    p.residue[row.device] += row.memory * p.microbatches;
    work[row.device] += row.time * p.microbatches;
    all[row.device] += std::max(0.0, row.memory) * p.microbatches;
    p.slack = std::max(p.slack, 1e-9 * std::abs(row.memory));
  }
  // A limit that all microbatches together stay below is none.
  for (int d = 0; d < p.devices; ++d)
    if (all[d] <= p.limit[d])
      p.limit[d] = kNever;
  p.work = *std::max_element(work.begin(), work.end());
  return p;
}

void fuse(Problem &p) {
  for (auto *rows : {&p.rows, &p.mirror})
    for (int r = 1; r < 3 * p.stages; r += 3) {
      Row &i = (*rows)[r], &w = (*rows)[r + 1];
      i.time += w.time;
      i.memory += w.memory;
      w.time = w.memory = 0;
    }
  p.fused = true;
}

Schedule toSchedule(const Problem &p, const Order &order) {
  static constexpr Kind kKinds[] = {Kind::F, Kind::I, Kind::W};
  Schedule schedule;
  schedule.stages = p.stages;
  schedule.microbatches = p.microbatches;
  for (int s = 0; s < p.stages; ++s)
    schedule.placement.push_back({p.rows[3 * s].device});
  schedule.order.resize(p.devices);
  for (int d = 0; d < p.devices; ++d)
    for (Task t : order[d]) {
      Kind kind = kKinds[p.rowOf(t) % 3];
      if (p.fused && kind == Kind::W)
        continue;
      schedule.order[d].push_back({p.fused && kind == Kind::I ? Kind::B : kind,
                                   p.rowOf(t) / 3, p.microbatchOf(t)});
    }
  return schedule;
}

Order toOrder(const Problem &p, const Schedule &schedule) {
  Order order(p.devices);
  std::vector<int> seen(3 * p.stages, 0);
  auto put = [&](int d, int row) {
    order[d].push_back(p.task(row, seen[row]++));
  };
  for (int d = 0; d < p.devices; ++d)
    for (const Action &a : schedule.order[d]) {
      int kind = a.kind == Kind::F ? 0 : a.kind == Kind::W ? 2 : 1;
      put(d, 3 * a.stage + kind);
      if (a.kind == Kind::B)
        put(d, 3 * a.stage + 2);
    }
  return order;
}

Result evaluate(const Problem &p, const Order &order,
                std::vector<double> *starts) {
  if (starts)
    starts->assign(p.taskIds(), kNever);
  std::vector<double> arrival(p.taskIds(), kNever), freeAt(p.devices, 0),
      first(p.devices, 0);
  std::vector<std::size_t> next(p.devices, 0);
  std::vector<int> ready;
  for (int d = p.devices - 1; d >= 0; --d)
    ready.push_back(d);
  while (!ready.empty()) {
    int d = ready.back();
    ready.pop_back();
    const auto &list = order[d];
    for (; next[d] < list.size(); ++next[d]) {
      Task t = list[next[d]];
      const Row &row = p.rows[p.rowOf(t)];
      double begin = freeAt[d];
      if (row.waits) {
        if (arrival[t] == kNever)
          break;
        begin = std::max(begin, arrival[t]);
      }
      if (next[d] == 0)
        first[d] = begin;
      if (starts)
        (*starts)[t] = begin;
      freeAt[d] = begin + row.time;
      if (row.feeds < 0)
        continue;
      Task fed = p.task(row.feeds, p.microbatchOf(t));
      arrival[fed] = freeAt[d] + row.hop;
      int e = p.rows[row.feeds].device;
      if (e != d && next[e] < order[e].size() && order[e][next[e]] == fed)
        ready.push_back(e);
    }
  }
  Result result;
  double from = kNever, to = 0, span = 0;
  for (int d = 0; d < p.devices; ++d) {
    if (next[d] < order[d].size())
      return result;
    from = std::min(from, first[d]);
    to = std::max(to, freeAt[d]);
    span = std::max(span, freeAt[d] - first[d]);
  }
  result.makespan = to - from;
  result.span = span;
  result.fits = fits(p, order);
  return result;
}

bool fits(const Problem &p, const Order &order) {
  for (int d = 0; d < p.devices; ++d) {
    double held = 0;
    for (Task t : order[d]) {
      held += p.rows[p.rowOf(t)].memory;
      if (!p.fits(held, d))
        return false;
    }
  }
  return true;
}

LeastLimit leastLimit(const Problem &p) {
  LeastLimit least;
  double worst = -kNever;
  for (int d = 0; d < p.devices; ++d) {
    double needed = 0;
    for (int row : p.rowsOf[d])
      needed +=
          row % 3 == 0 ? p.rows[row].memory : std::max(0.0, p.rows[row].memory);
    if (needed - p.limit[d] > worst) {
      worst = needed - p.limit[d];
      least = {d, needed};
    }
  }
  return least;
}

} // namespace pipec::schedule::search
