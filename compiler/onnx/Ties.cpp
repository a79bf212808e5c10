//===- Ties.cpp - weights that are copies of each other -------------------===//
#include "compiler/onnx/Ties.h"
#include "compiler/onnx/Values.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace pipec::onnx {
namespace {

/// The bytes of a weight and how to walk them.
struct Table {
  size_t index;
  std::string_view bytes;
  int64_t rows = 1, columns = 1, width = 1; ///< of a matrix; else one row
  std::vector<int64_t> dims{};                ///< those that are not 1
  bool isMatrix = false;                    ///< as it stands in the file

  const char *at(int64_t row, int64_t column) const {
    return bytes.data() + (row * columns + column) * width;
  }
};

std::optional<Table> tableOf(const Model &model, size_t index) {
  const TensorData &t = model.graph.initializers[index];
  if (!t.problem.empty() || t.elements() < 2)
    return std::nullopt;
  Table table{index, model.bytesOf(t), 1, t.elements(), byteWidth(t.type)};
  std::copy_if(t.dims.begin(), t.dims.end(), std::back_inserter(table.dims),
               [](int64_t d) { return d != 1; });
  table.isMatrix = t.dims.size() == 2;
  if (table.dims.size() == 2) {
    table.rows = table.dims[0];
    table.columns = table.dims[1];
  }
  if (static_cast<int64_t>(table.bytes.size()) != t.elements() * table.width)
    return std::nullopt;
  return table;
}

bool mayBeEqual(const Table &a, const Table &b) { return a.dims == b.dims; }

bool mayBeTransposed(const Table &a, const Table &b) {
  return a.dims.size() == 2 && b.isMatrix && a.rows == b.columns &&
         a.columns == b.rows;
}

bool equal(const Table &a, const Table &b) {
  return mayBeEqual(a, b) && a.bytes == b.bytes;
}

/// Whether `a` is the transposed matrix `b`.
bool equalTransposed(const Table &a, const Table &b) {
  if (!mayBeTransposed(a, b))
    return false;
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j)
      if (std::memcmp(a.at(i, j), b.at(j, i), a.width) != 0)
        return false;
  return true;
}

/// Some elements that a transpose leaves in their order: the first, the last,
/// and the diagonal between. Empty when they say nothing.
std::string fingerprint(const Table &t) {
  std::string text;
  const int64_t n = t.dims.size() == 2 ? std::min(t.rows, t.columns) : 1;
  const auto add = [&](int64_t i, int64_t j) {
    text.append(t.at(i, j), t.width);
  };
  for (int64_t i = 0; i < std::min<int64_t>(n, 16); ++i)
    add(i, i);
  add(t.rows - 1, t.columns - 1);
  bool varied = false;
  for (size_t i = t.width; i < text.size(); i += t.width)
    varied = varied || text.compare(i, t.width, text, 0, t.width) != 0;
  if (!varied)
    return "";
  return std::to_string(t.bytes.size()) + ":" + std::to_string(t.width) + ":" +
         text;
}

} // namespace

bool isRepeated(const Model &model, const TensorData &t,
                const Classification &classification) {
  const bool folded =
      classification.reason.find("folded") != std::string::npos ||
      t.name.rfind("onnx::", 0) == 0;
  if (classification.role != Role::Weight || !folded || t.dims.size() < 2 ||
      isUniform(model, t))
    return false;
  return repeatsItself(model, t);
}

TensorData firstRepetition(const TensorData &t) {
  TensorData first = t;
  first.dims[0] = 1;
  first.length = t.length / t.dims[0];
  first.bytes.resize(t.bytes.size() / static_cast<size_t>(t.dims[0]));
  return first;
}

std::vector<Tie> findTies(const Model &model,
                          const std::vector<Classification> &classes) {
  std::map<std::string, std::vector<Table>> seen;
  std::vector<Tie> ties;
  for (size_t i = 0; i < classes.size(); ++i) {
    const auto table =
        classes[i].role == Role::Weight ? tableOf(model, i) : std::nullopt;
    const std::string key = table ? fingerprint(*table) : "";
    if (key.empty())
      continue;
    std::vector<Table> &candidates = seen[key];
    bool tied = false;
    for (const Table &other : candidates) {
      if (model.graph.initializers[i].type !=
          model.graph.initializers[other.index].type)
        continue;
      if (!mayBeEqual(*table, other) && !mayBeTransposed(*table, other))
        continue;
      model.announce(model.graph.initializers[i]);
      model.announce(model.graph.initializers[other.index]);
      const bool same = equal(*table, other);
      if (!same && !equalTransposed(*table, other))
        continue;
      ties.push_back({i, other.index, !same});
      tied = true;
      break;
    }
    if (!tied)
      candidates.push_back(*table);
  }
  return ties;
}

} // namespace pipec::onnx
