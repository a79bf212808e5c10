#include "compiler/plan/published/PlacementCuts.h"

#include "support/Phase.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace pipec::published {

BitRows prefixSets(const PlacementUnits &units, const std::vector<int> &order) {
  BitRows sets(static_cast<size_t>(std::max(1, units.size())));
  std::vector<uint64_t> row(sets.words, 0);
  sets.push(row.data());
  for (int u : order) {
    BitRows::set(row.data(), u);
    sets.push(row.data());
  }
  return sets;
}

bool allSets(const PlacementUnits &units, bool memoryBinds, size_t limit,
             BitRows &sets) {
  const auto n = static_cast<size_t>(units.size());
  std::vector<char> isIdle(n, 0);
  std::vector<int> number(n, -1);
  int kept = 0;
  for (size_t v = n; v-- > 0;) {
    const auto &after = units.order.out[v];
    isIdle[v] =
        units.latency[v] == 0 && units.cpuLatency[v] == 0 &&
        units.touching[v].empty() && units.onAccelerator[v] &&
        !(memoryBinds && units.bytes[v] != 0) && !units.order.in[v].empty() &&
        std::all_of(after.begin(), after.end(),
                    [&](int w) { return isIdle[static_cast<size_t>(w)]; });
  }
  for (size_t v = 0; v < n; ++v)
    if (!isIdle[v])
      number[v] = kept++;
  Dag rest(kept);
  for (size_t v = 0; v < n; ++v)
    for (int w : units.order.out[v])
      if (!isIdle[static_cast<size_t>(w)])
        rest.edge(number[v], number[static_cast<size_t>(w)]);
  rest.finish();
  BitRows some;
  if (!closedSets(rest, limit, some))
    return false;
  sets = BitRows(std::max<size_t>(1, n));
  for (size_t s = 0; s < some.rows(); ++s) {
    std::vector<uint64_t> row(sets.words, 0);
    for (size_t v = 0; v < n; ++v) {
      const auto &before = units.order.in[v];
      const bool isIn =
          isIdle[v]
              ? std::all_of(before.begin(), before.end(),
                            [&](int u) { return BitRows::test(row.data(), u); })
              : BitRows::test(some.row(s), number[v]);
      if (isIn)
        BitRows::set(row.data(), static_cast<int>(v));
    }
    sets.push(row.data());
  }
  return true;
}

namespace {

/// body(bit) for each bit of a row of so many words, ascending.
template <typename Body>
void forBits(const uint64_t *row, size_t words, Body body) {
  for (size_t w = 0; w < words; ++w)
    for (uint64_t rest = row[w]; rest != 0; rest &= rest - 1)
      body(w * 64 + static_cast<size_t>(std::countr_zero(rest)));
}

class Listing {
public:
  Listing(const PlacementUnits &units, const BitRows &sets)
      : units(units), sets(sets) {}

  PlacementCuts list();

private:
  void sums();
  void lay();
  template <typename Bits> ListsOfCuts listsOf(size_t rows, Bits bits) const;
  ListsOfCuts cutTransfers() const;
  ListsOfCuts maximal() const;
  ListsOfCuts ready() const;
  size_t leastWith(size_t k, size_t unit) const;
  bool addsOnly(size_t k, size_t j, size_t unit) const;
  bool covers(size_t k, int unit) const;
  ListsOfCuts covered() const;

  const PlacementUnits &units;
  const BitRows &sets;
  PlacementCuts cuts;
};

void Listing::sums() {
  struct Sums {
    double work = 0, cpu = 0, bytes = 0;
    int unsupported = 0, size = 0;
  };
  const size_t n = sets.rows();
  std::vector<Sums> of(n);
  for (size_t s = 0; s < n; ++s)
    forBits(sets.row(s), sets.words, [&](size_t u) {
      of[s].work += units.latency[u];
      of[s].cpu += units.cpuLatency[u];
      of[s].bytes += units.bytes[u];
      of[s].unsupported += !units.onAccelerator[u];
      ++of[s].size;
    });
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (of[a].work != of[b].work)
      return of[a].work < of[b].work;
    return of[a].size != of[b].size ? of[a].size < of[b].size : a < b;
  });
  cuts.sets = BitRows(static_cast<size_t>(std::max(1, units.size())));
  cuts.sets.reserve(n);
  for (size_t s : order) {
    cuts.sets.push(sets.row(s));
    cuts.work.push_back(of[s].work);
    cuts.cpu.push_back(of[s].cpu);
    cuts.bytes.push_back(of[s].bytes);
    cuts.unsupported.push_back(of[s].unsupported);
  }
}

/// Bits over the cuts.
void Listing::lay() {
  const size_t n = cuts.size();
  cuts.containing = BitsOverCuts(static_cast<size_t>(units.size()), n);
  for (size_t s = 0; s < n; ++s)
    forBits(cuts.sets.row(s), cuts.sets.words, [&](size_t u) {
      BitRows::set(cuts.containing[u], static_cast<int>(s));
    });
  cuts.settled = BitsOverCuts(units.transfers.size(), n);
  for (size_t t = 0; t < units.transfers.size(); ++t)
    for (size_t w = 0; w < cuts.settled.words; ++w) {
      uint64_t all =
          cuts.containing[static_cast<size_t>(units.transfers[t].producer)][w];
      for (int c : units.transfers[t].consumers)
        all &= cuts.containing[static_cast<size_t>(c)][w];
      cuts.settled[t][w] = all;
    }
}

/// For each cut the rows that have its bit; bits(row, word) gives 64 of them,
/// from all cuts on where the last word ends.
template <typename Bits>
ListsOfCuts Listing::listsOf(size_t rows, Bits bits) const {
  const size_t n = cuts.size(), words = cuts.containing.words;
  const uint64_t last = n % 64 ? ~uint64_t(0) >> (64 - n % 64) : ~uint64_t(0);
  ListsOfCuts lists;
  lists.begins.assign(n + 1, 0);
  BitsOverCuts row(1, n);
  auto forAll = [&](auto body) {
    for (size_t r = 0; r < rows; ++r) {
      for (size_t w = 0; w < words; ++w)
        row[0][w] = bits(r, w);
      row[0][words - 1] &= last;
      forBits(row[0], words, [&](size_t cut) { body(cut, r); });
    }
  };
  forAll([&](size_t cut, size_t) { ++lists.begins[cut + 1]; });
  std::partial_sum(lists.begins.begin(), lists.begins.end(),
                   lists.begins.begin());
  lists.items.resize(lists.begins.back());
  std::vector<size_t> at(lists.begins.begin(), lists.begins.end() - 1);
  forAll([&](size_t cut, size_t r) {
    lists.items[at[cut]++] = static_cast<uint32_t>(r);
  });
  return lists;
}

ListsOfCuts Listing::cutTransfers() const {
  return listsOf(units.transfers.size(), [&](size_t t, size_t w) {
    const Transfer &transfer = units.transfers[t];
    uint64_t some = cuts.containing[static_cast<size_t>(transfer.producer)][w];
    for (int c : transfer.consumers)
      some |= cuts.containing[static_cast<size_t>(c)][w];
    return some & ~cuts.settled[t][w];
  });
}

ListsOfCuts Listing::maximal() const {
  return listsOf(static_cast<size_t>(units.size()), [&](size_t u, size_t w) {
    uint64_t is = cuts.containing[u][w];
    for (int v : units.order.out[u])
      is &= ~cuts.containing[static_cast<size_t>(v)][w];
    return is;
  });
}

/// Units that are not in a cut, while all before them are.
ListsOfCuts Listing::ready() const {
  return listsOf(static_cast<size_t>(units.size()), [&](size_t u, size_t w) {
    uint64_t is = ~cuts.containing[u][w];
    for (int v : units.order.in[u])
      is &= cuts.containing[static_cast<size_t>(v)][w];
    return is;
  });
}

/// Whether a device that begins at k and has the unit, which is ready there,
/// loses nothing when it begins behind it. It need no longer compute the unit,
/// nor exchange what has all its other ends in k; what has none there may now
/// be exchanged, and the rest was before. A device without the unit gains or
/// loses nothing, as for its transfers only its own units count. Nor does a
/// CPU lose, on which a unit that accelerators cannot run is in any case.
bool Listing::covers(size_t k, int unit) const {
  if (!units.onAccelerator[unit])
    return true;
  const uint64_t *row = cuts.sets.row(k);
  double saved = units.latency[unit], more = 0;
  for (int t : units.touching[unit]) {
    const Transfer &transfer = units.transfers[t];
    size_t others = transfer.consumers.size(), inside = 0;
    auto look = [&](int u) { inside += u != unit && BitRows::test(row, u); };
    look(transfer.producer);
    for (int c : transfer.consumers)
      look(c);
    if (inside == others)
      saved += transfer.cost;
    else if (inside == 0)
      more += transfer.cost;
  }
  return saved >= more;
}

/// The first cut that has cut k and the unit; the number of cuts for none. It
/// is their union where that is a cut.
size_t Listing::leastWith(size_t k, size_t unit) const {
  const double least = cuts.work[k] + units.latency[unit] * (1 - 1e-9) -
                       1e-12 * cuts.work.back();
  const auto from = static_cast<size_t>(
      std::lower_bound(cuts.work.begin() + static_cast<ptrdiff_t>(k) + 1,
                       cuts.work.end(), least) -
      cuts.work.begin());
  const uint64_t *with = cuts.containing[unit];
  for (size_t w = from / 64; w < cuts.containing.words; ++w) {
    uint64_t both = with[w];
    if (w == from / 64)
      both &= ~uint64_t(0) << (from % 64);
    for (uint32_t u : cuts.maximal[k])
      both &= cuts.containing[u][w];
    if (both != 0)
      return w * 64 + static_cast<size_t>(std::countr_zero(both));
  }
  return cuts.size();
}

/// Whether j has the unit and otherwise nothing that k has not, but for units
/// that cost nothing.
bool Listing::addsOnly(size_t k, size_t j, size_t unit) const {
  const uint64_t *before = cuts.sets.row(k), *after = cuts.sets.row(j);
  bool isSo = true;
  std::vector<uint64_t> more(cuts.sets.words);
  for (size_t w = 0; w < more.size(); ++w)
    more[w] = after[w] & ~before[w];
  forBits(more.data(), more.size(), [&](size_t u) {
    isSo &= u == unit || (units.latency[u] == 0 && units.cpuLatency[u] == 0 &&
                          units.touching[u].empty());
  });
  return isSo;
}

ListsOfCuts Listing::covered() const {
  const size_t n = cuts.size();
  std::vector<std::pair<uint32_t, uint32_t>> pairs; // covered, by
  const ListsOfCuts readyUnits = ready();
  ListsOfCuts lists;
  lists.begins.assign(n + 1, 0);
  for (size_t k = 0; k < n; ++k)
    for (uint32_t unit : readyUnits[k]) {
      if (!covers(k, static_cast<int>(unit)))
        continue;
      const size_t j = leastWith(k, unit);
      if (j == n || !addsOnly(k, j, unit))
        continue;
      pairs.push_back({static_cast<uint32_t>(k), static_cast<uint32_t>(j)});
      ++lists.begins[j + 1];
    }
  std::partial_sum(lists.begins.begin(), lists.begins.end(),
                   lists.begins.begin());
  lists.items.resize(pairs.size());
  std::vector<size_t> at(lists.begins.begin(), lists.begins.end() - 1);
  for (auto [k, by] : pairs)
    lists.items[at[by]++] = k;
  return lists;
}

PlacementCuts Listing::list() {
  const Phase listing("listing cuts");
  sums();
  lay();
  cuts.cutTransfers = cutTransfers();
  cuts.maximal = maximal();
  cuts.coveredBy = covered();
  for (size_t s = 0; s < cuts.size(); ++s) {
    double crossing = 0;
    for (uint32_t t : cuts.cutTransfers[s])
      crossing += units.transfers[t].cost;
    cuts.crossing.push_back(crossing);
    if (s % 64 == 0)
      cuts.leastOf64.push_back(cuts.work[s] + crossing);
    cuts.leastOf64.back() =
        std::min(cuts.leastOf64.back(), cuts.work[s] + crossing);
  }
  return std::move(cuts);
}

} // namespace

PlacementCuts placementCuts(const PlacementUnits &units, const BitRows &sets) {
  return Listing(units, sets).list();
}

} // namespace pipec::published
