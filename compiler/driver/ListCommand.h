//===- ListCommand.h - `pipec list` -----------------------------*- C++ -*-===//
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pipec {

/// One line of a list: a row of a .def table.
struct ListRow {
  std::string name, summary;
  /// Further columns, the same for all rows of a list: (column, value).
  std::vector<std::pair<std::string, std::string>> extra;
};

/// Lists that come from libraries with MLIR; the rest is read from the plain
/// ones.
struct ListTables {
  std::vector<ListRow> ops, optimizers;
};

/// `pipec list ops|schedules|…`, alone what there is to list; argv[0] is
/// "list". Prints to stdout, returns the exit code, throws Failure(Usage).
int listCommand(int argc, char **argv, const ListTables &tables);

} // namespace pipec
