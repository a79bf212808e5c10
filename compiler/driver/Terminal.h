//===- Terminal.h - how wide, and in color? ---------------------*- C++ -*-===//
#pragma once

#include "report/Report.h"

namespace pipec {

/// Width and color of stdout: those of the terminal; 100 columns and no color
/// in a pipe or where NO_COLOR is set.
report::TextOptions terminalOptions();

} // namespace pipec
