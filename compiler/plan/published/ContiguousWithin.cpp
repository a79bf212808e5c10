#include "compiler/plan/published/ContiguousWithin.h"

#include "support/Phase.h"

#include <algorithm>
#include <bit>

namespace pipec::published {

ContiguousWithin::ContiguousWithin(const PlacementUnits &units,
                                   const PlacementMachine &machine,
                                   const PlacementCuts &cuts)
    : units(units), machine(machine), cuts(cuts), offload(units) {}

PlacementPlan ContiguousWithin::find(double within) {
  Phase searching("searching cuts, accelerator", machine.accelerators);
  begin(within);
  for (int left = machine.accelerators;; --left) {
    for (int c = 0; c < machine.cpus; ++c)
      for (uint32_t k : level[c])
        if (!BitRows::test(covered[c], static_cast<int>(k)) &&
            addCpu(k, c, left))
          return rebuild();
    if (left == 0)
      return {};
    searching.next();
    if (addAccelerators(left - 1))
      return rebuild();
  }
}

void ContiguousWithin::begin(double within) {
  load = within;
  slack = 1e-9 * (cuts.work.back() + load);
  offloadFor.clear();
  for (int c = 0; c <= machine.cpus; ++c)
    offloadFor.push_back(offload.most(load, c));
  const auto counts = static_cast<size_t>(machine.cpus + 1);
  done = covered = BitsOverCuts(counts, cuts.size());
  level.assign(counts, {});
  next.assign(counts, {});
  origin.assign(counts, std::vector<From>(cuts.size()));
  dropHopeless(machine.accelerators);
  level[0].push_back(0);
  for (int c = 0; c <= machine.cpus; ++c)
    BitRows::set(done[c], 0);
}

/// One more accelerator behind all that the last one reached; whether that is
/// the end. The largest cuts are tried first, from the largest: they cover
/// others. What is reached now covers only what needs the one more.
bool ContiguousWithin::addAccelerators(int left) {
  for (int c = 0; c <= machine.cpus; ++c) {
    std::erase_if(level[c], [&](uint32_t k) {
      return BitRows::test(covered[c], static_cast<int>(k));
    });
    std::sort(level[c].begin(), level[c].end(), std::greater<>());
  }
  dropHopeless(left);
  for (int c = 0; c <= machine.cpus; ++c)
    for (uint32_t k : level[c])
      if (addAccelerator(k, c, left))
        return true;
  level.swap(next);
  for (auto &list : next)
    list.clear();
  return false;
}

/// Where one device is left, or none, it is known which cuts can do with it.
void ContiguousWithin::dropHopeless(int accelerators) {
  for (int c = 0; c <= machine.cpus; ++c) {
    const int cpus = machine.cpus - c;
    if (accelerators + cpus > 1)
      continue;
    for (size_t j = 0; j < end(); ++j) {
      const bool enough = accelerators ? fits(j, end(), true)
                          : cpus       ? cuts.cpu[end()] - cuts.cpu[j] <= load
                                       : false;
      if (!enough)
        BitRows::set(done[c], static_cast<int>(j));
    }
  }
}

/// What is known of a cut with so many CPUs is so with more.
void ContiguousWithin::mark(BitsOverCuts &bits, uint32_t cut, int cpus) const {
  const int bit = static_cast<int>(cut);
  for (int c = cpus; c <= machine.cpus && !BitRows::test(bits[c], bit); ++c)
    BitRows::set(bits[c], bit);
}

/// Notes a cut and those that it covers; whether it is the end.
bool ContiguousWithin::reached(uint32_t cut, int cpus, From from) {
  origin[cpus][cut] = from;
  if (cut == end()) {
    cpusAtEnd = cpus;
    return true;
  }
  mark(done, cut, cpus);
  stack.assign(1, cut);
  while (!stack.empty()) {
    const uint32_t by = stack.back();
    stack.pop_back();
    for (uint32_t k : cuts.coveredBy[by]) {
      mark(covered, k, cpus);
      if (BitRows::test(done[cpus], static_cast<int>(k)))
        continue;
      mark(done, k, cpus);
      stack.push_back(k);
    }
  }
  return false;
}

/// Those in [from, to) that contain k and are not done, as bits in `above`;
/// whether there are any.
bool ContiguousWithin::superset(size_t k, size_t from, size_t to,
                                const uint64_t *isDone) {
  if (from >= to)
    return false;
  const size_t first = from / 64, last = (to + 63) / 64;
  above.resize(cuts.containing.words);
  for (size_t w = first; w < last; ++w)
    above[w] = ~isDone[w];
  above[first] &= ~uint64_t(0) << (from % 64);
  if (to % 64 != 0)
    above[last - 1] &= ~uint64_t(0) >> (64 - to % 64);
  for (uint32_t u : cuts.maximal[k]) {
    const uint64_t *bits = cuts.containing[u];
    for (size_t w = first; w < last; ++w)
      above[w] &= bits[w];
  }
  return std::any_of(above.begin() + static_cast<ptrdiff_t>(first),
                     above.begin() + static_cast<ptrdiff_t>(last),
                     [](uint64_t w) { return w != 0; });
}

bool ContiguousWithin::addCpu(uint32_t k, int cpus, int left) {
  const auto &work = cuts.work;
  const double least =
      work.back() - load * left - offloadFor[machine.cpus - cpus - 1] - slack;
  const auto from =
      std::lower_bound(work.begin() + k + 1, work.end(), least) - work.begin();
  const auto to = std::upper_bound(work.begin() + k + 1, work.end(),
                                   work[k] + offloadFor[1] + slack) -
                  work.begin();
  const auto begins = static_cast<size_t>(from), ends = static_cast<size_t>(to);
  if (!superset(k, begins, ends, done[cpus + 1]))
    return false;
  for (size_t w = (ends + 63) / 64; w-- > begins / 64;)
    for (uint64_t rest = above[w]; rest != 0; rest &= ~done[cpus + 1][w]) {
      const int bit = 63 - std::countl_zero(rest);
      rest &= ~(uint64_t(1) << bit);
      const auto j = static_cast<uint32_t>(w * 64) + static_cast<uint32_t>(bit);
      if (cuts.cpu[j] - cuts.cpu[k] > load)
        continue;
      level[cpus + 1].push_back(j);
      if (reached(j, cpus + 1, {k, true}))
        return true;
    }
  return false;
}

/// The transfers that k cuts, and the cuts between which and k none is cut at
/// both.
void ContiguousWithin::open(uint32_t k, size_t firstWord, size_t lastWord) {
  opened.clear();
  far.resize(cuts.containing.words);
  std::fill(far.begin() + static_cast<ptrdiff_t>(firstWord),
            far.begin() + static_cast<ptrdiff_t>(lastWord), ~uint64_t(0));
  const uint64_t *row = cuts.sets.row(k);
  for (uint32_t t : cuts.cutTransfers[k]) {
    const Transfer &transfer = units.transfers[t];
    const uint64_t *settled = cuts.settled[t];
    opened.push_back({transfer.cost, settled, {}});
    if (!BitRows::test(row, transfer.producer))
      opened.back().waiting.push_back(transfer.producer);
    for (int c : transfer.consumers)
      if (!BitRows::test(row, c))
        opened.back().waiting.push_back(c);
    for (size_t w = firstWord; w < lastWord; ++w)
      far[w] &= settled[w];
  }
}

/// Whether an accelerator can have what is between k and j. Each transfer that
/// is cut at one end moves once, in or out; one that is cut at both moves once
/// if one of its ends is in between.
bool ContiguousWithin::fits(size_t k, size_t j, bool isFar) const {
  double seconds = cuts.work[j] - cuts.work[k] + cuts.crossing[j];
  if (!isFar)
    for (const Open &o : opened)
      seconds -= BitRows::test(o.settled, static_cast<int>(j)) ? 0 : 2 * o.cost;
  seconds += cuts.crossing[k];
  if (seconds > load || cuts.unsupported[j] != cuts.unsupported[k] ||
      cuts.bytes[j] - cuts.bytes[k] > machine.bytes)
    return false;
  if (isFar)
    return true;
  const uint64_t *row = cuts.sets.row(j);
  for (const Open &o : opened)
    if (!BitRows::test(o.settled, static_cast<int>(j)) &&
        std::any_of(o.waiting.begin(), o.waiting.end(),
                    [&](int u) { return BitRows::test(row, u); }))
      seconds += o.cost;
  return seconds <= load;
}

bool ContiguousWithin::addAccelerator(uint32_t k, int cpus, int left) {
  const auto &work = cuts.work;
  const double least =
      work.back() - load * left - offloadFor[machine.cpus - cpus] - slack;
  const auto from =
      std::lower_bound(work.begin() + k + 1, work.end(), least) - work.begin();
  const auto to = std::upper_bound(work.begin() + k + 1, work.end(),
                                   work[k] + load + slack) -
                  work.begin();
  const auto begins = static_cast<size_t>(from), ends = static_cast<size_t>(to);
  const uint64_t *isDone = done[cpus];
  if (!superset(k, begins, ends, isDone))
    return false;
  open(k, begins / 64, (ends + 63) / 64);
  // The most that work and crossing of a far cut may be.
  const double most = load + work[k] - cuts.crossing[k] + slack;
  for (size_t w = (ends + 63) / 64; w-- > begins / 64;) {
    uint64_t rest = above[w] & ~isDone[w];
    if (cuts.leastOf64[w] > most)
      rest &= ~far[w];
    if (cuts.leastOf64[w] > most + 2 * cuts.crossing[k])
      rest = 0;
    for (; rest != 0; rest &= ~isDone[w]) {
      const int bit = 63 - std::countl_zero(rest);
      rest &= ~(uint64_t(1) << bit);
      const auto j = static_cast<uint32_t>(w * 64) + static_cast<uint32_t>(bit);
      if (!fits(k, j, far[w] >> bit & 1))
        continue;
      next[cpus].push_back(j);
      if (reached(j, cpus, {k, false}))
        return true;
    }
  }
  return false;
}

PlacementPlan ContiguousWithin::rebuild() const {
  PlacementPlan plan;
  int cpus = cpusAtEnd;
  for (size_t at = end(); at != 0;) {
    const From from = origin[cpus][at];
    PlacementPlan::Device device;
    device.cpu = from.cpu;
    std::vector<char> member(static_cast<size_t>(units.size()), 0);
    for (int u = 0; u < units.size(); ++u)
      if (BitRows::test(cuts.sets.row(at), u) &&
          !BitRows::test(cuts.sets.row(from.cut), u)) {
        device.units.push_back(u);
        member[u] = 1;
      }
    device.load = placementLoad(units, member, from.cpu);
    plan.load = std::max(plan.load, device.load);
    plan.devices.insert(plan.devices.begin(), std::move(device));
    cpus -= from.cpu;
    at = from.cut;
  }
  return plan;
}

} // namespace pipec::published
