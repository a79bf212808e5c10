//===- ReadFile.h - small files that users name ---------------*- C++ -*-===//
#pragma once

#include <string>

namespace pipec {

/// The bytes of a file. `what` names it in the message ("the cluster file").
/// Failure(Exit::NoInput) with the reason and the remedy when it is missing, a
/// directory or unreadable.
std::string
readFile(const std::string &path, const std::string &what,
         const std::string &remedy = "check the path and its permissions");

} // namespace pipec
