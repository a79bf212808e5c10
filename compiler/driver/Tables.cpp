//===- Tables.cpp - what `pipec list` shows ------------------------------===//
#include "compiler/driver/Tables.h"

#include "compiler/driver/ListCommand.h"
#include "compiler/onnx/OpTable.h"
#include "passes/Optimizer.h"

namespace pipec {

static std::vector<ListRow> opRows() {
  std::vector<ListRow> rows;
  for (const onnx::OpRow &op : onnx::opTable()) {
    std::string since;
    for (int64_t version : op.since)
      since += (since.empty() ? "" : ",") + std::to_string(version);
    std::string domain = op.domain.empty() ? "ai.onnx" : std::string(op.domain);
    rows.push_back({std::string(op.name),
                    std::string(op.limits),
                    {{"domain", domain}, {"since", since}}});
  }
  return rows;
}

static std::vector<ListRow> optimizerList() {
  std::vector<ListRow> rows;
  for (const OptimizerRow &row : optimizerRows())
    rows.push_back({row.name, row.summary, {{"settings", row.settings}}});
  return rows;
}

int listCommandWithTables(int argc, char **argv) {
  return listCommand(argc, argv, {opRows(), optimizerList()});
}

} // namespace pipec
