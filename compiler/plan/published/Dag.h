//===- Dag.h - directed graphs of the published inputs ----------*- C++ -*-===//
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace pipec::published {

/// Nodes 0..n-1 with successor and predecessor lists (ascending, no
/// duplicates).
struct Dag {
  std::vector<std::vector<int>> out, in;

  explicit Dag(int nodes = 0)
      : out(static_cast<size_t>(nodes)), in(static_cast<size_t>(nodes)) {}
  int size() const { return static_cast<int>(out.size()); }
  void edge(int from, int to);
  /// Sorts the lists and drops duplicate edges.
  void finish();
};

/// The nodes so that every edge goes forward, smallest number first among the
/// ready ones; empty when the graph has a cycle.
std::vector<int> topologicalOrder(const Dag &dag);

/// One cycle's nodes in order, for a message; empty when there is none.
std::vector<int> findCycle(const Dag &dag);

/// component[node] for strongly connected components, numbered in topological
/// order of the condensation, smallest node first among unordered ones.
std::vector<int> strongComponents(const Dag &dag, int &count);

/// Number of weakly connected components.
int weakComponents(const Dag &dag);

/// Sets of nodes as rows of 64-bit words.
class BitRows {
public:
  BitRows() = default;
  BitRows(size_t bits) : words((bits + 63) / 64) {}
  size_t rows() const { return words ? data.size() / words : 0; }
  const uint64_t *row(size_t r) const { return data.data() + r * words; }
  void push(const uint64_t *from) {
    data.insert(data.end(), from, from + words);
  }
  void reserve(size_t rows) { data.reserve(rows * words); }
  static bool test(const uint64_t *row, int bit) {
    return row[bit >> 6] >> (bit & 63) & 1;
  }
  static void set(uint64_t *row, int bit) {
    row[bit >> 6] |= uint64_t(1) << (bit & 63);
  }
  bool subset(size_t a, size_t b) const {
    const uint64_t *x = row(a), *y = row(b);
    for (size_t w = 0; w < words; ++w)
      if (x[w] & ~y[w])
        return false;
    return true;
  }
  size_t words = 0;

private:
  std::vector<uint64_t> data;
};

/// All closed sets (with a node all its predecessors), the empty one first,
/// each before its supersets. False, with `sets` cleared, when there are more
/// than `limit`.
bool closedSets(const Dag &dag, size_t limit, BitRows &sets);

/// Topological orders worth cutting at: depth first, breadth first, and one
/// that greedily keeps `frontier` (bytes of a node's output while some consumer
/// is still to come) small. Without duplicates.
std::vector<std::vector<int>> linearOrders(const Dag &dag,
                                           const std::vector<double> &frontier);

} // namespace pipec::published
