#include "compiler/plan/published/Supersets.h"

namespace pipec::published {

/// A closed set contains another exactly when it contains the nodes of that
/// which have no successor in it: rows of bits over all sets are intersected,
/// one for each such node.
Supersets supersetsOf(const Dag &dag, const BitRows &sets) {
  const size_t n = sets.rows(), words = (n + 63) / 64;
  std::vector<std::vector<uint64_t>> containing(
      static_cast<size_t>(dag.size()), std::vector<uint64_t>(words, 0));
  for (size_t s = 0; s < n; ++s)
    for (int v = 0; v < dag.size(); ++v)
      if (BitRows::test(sets.row(s), v))
        BitRows::set(containing[static_cast<size_t>(v)].data(),
                     static_cast<int>(s));
  Supersets above(n);
  std::vector<uint64_t> row(words);
  for (size_t k = 0; k < n; ++k) {
    const uint64_t *set = sets.row(k);
    const size_t from = k / 64;
    std::fill(row.begin() + static_cast<long>(from), row.end(), ~uint64_t(0));
    for (int v = 0; v < dag.size(); ++v) {
      if (!BitRows::test(set, v))
        continue;
      const auto &out = dag.out[static_cast<size_t>(v)];
      if (std::any_of(out.begin(), out.end(),
                      [&](int w) { return BitRows::test(set, w); }))
        continue;
      const uint64_t *bits = containing[static_cast<size_t>(v)].data();
      for (size_t w = from; w < words; ++w)
        row[w] &= bits[w];
    }
    above.assign(k, row.data() + from);
  }
  return above;
}

} // namespace pipec::published
