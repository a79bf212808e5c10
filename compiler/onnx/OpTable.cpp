//===- OpTable.cpp - which operators there are ----------------------------===//
#include "compiler/onnx/OpTable.h"

#include <algorithm>
#include <tuple>

namespace pipec::onnx {

#define ONNX_OP(FUNCTION, DOMAIN, NAME, SINCE, LIMITS)                         \
  void FUNCTION(NodeContext &);
#include "compiler/onnx/OpTable.def"

#define VERSIONS(...) {__VA_ARGS__}
#define ONNX_OP(FUNCTION, DOMAIN, NAME, SINCE, LIMITS)                         \
  {DOMAIN, NAME, SINCE, LIMITS, FUNCTION},

const std::vector<OpRow> &opTable() {
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> r = {
#include "compiler/onnx/OpTable.def"
    };
    std::sort(r.begin(), r.end(), [](const OpRow &a, const OpRow &b) {
      return std::tie(a.domain, a.name) < std::tie(b.domain, b.name);
    });
    return r;
  }();
  return rows;
}

const OpRow *findOp(std::string_view domain, std::string_view name) {
  const std::vector<OpRow> &rows = opTable();
  const auto at =
      std::lower_bound(rows.begin(), rows.end(), std::pair(domain, name),
                       [](const OpRow &row, const auto &key) {
                         return std::pair(row.domain, row.name) < key;
                       });
  const bool found =
      at != rows.end() && at->domain == domain && at->name == name;
  return found ? &*at : nullptr;
}

int64_t newestOpset() {
  int64_t newest = 0;
  for (const OpRow &row : opTable())
    if (row.domain.empty())
      newest = std::max(newest, row.since.back());
  return newest;
}

const RefusedOp *findRefused(std::string_view name) {
#define ONNX_REFUSED(NAME, REASON, REMEDY) {NAME, REASON, REMEDY},
  static constexpr RefusedOp rows[] = {
#include "compiler/onnx/OpTable.def"
  };
  const auto at =
      std::find_if(std::begin(rows), std::end(rows),
                   [&](const RefusedOp &row) { return row.name == name; });
  return at == std::end(rows) ? nullptr : at;
}

} // namespace pipec::onnx
