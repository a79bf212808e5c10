//===- OpTable.h - which operators there are --------------------*- C++ -*-===//
//
// One row an ONNX operator, from OpTable.def. The importer, `pipec list ops`
// and the tests read it.
//
//===----------------------------------------------------------------------===//

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace pipec::onnx {

class NodeContext;

struct OpRow {
  std::string_view domain; ///< empty: ai.onnx
  std::string_view name;
  std::vector<int64_t> since; ///< versions whose meaning is known, ascending
  std::string_view limits;    ///< what is not supported, one line or empty
  void (*import)(NodeContext &);
};

/// All rows, sorted by domain and name.
const std::vector<OpRow> &opTable();

/// The row of an operator, or null.
const OpRow *findOp(std::string_view domain, std::string_view name);

/// The newest opset of ai.onnx that a row knows.
int64_t newestOpset();

/// An operator of ai.onnx that cannot be supported.
struct RefusedOp {
  std::string_view name, reason, remedy;
};
const RefusedOp *findRefused(std::string_view name);

} // namespace pipec::onnx
