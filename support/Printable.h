//===- Printable.h - a text that a terminal only shows ----------*- C++ -*-===//
#pragma once

#include <string>

namespace pipec {

/// The text with control characters, and bytes that are no UTF-8, as \x1b.
/// Names come from files: what they hold must not move the cursor, color the
/// screen or end a line.
std::string printable(const std::string &text);

} // namespace pipec
