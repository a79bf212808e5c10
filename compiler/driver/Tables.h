//===- Tables.h - what `pipec list` shows -----------------------*- C++ -*-===//
#pragma once

namespace pipec {

/// `pipec list` with the operators of the importer and the optimizers.
int listCommandWithTables(int argc, char **argv);

} // namespace pipec
