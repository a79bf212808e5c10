//===- OrderFile.h - `--strategy file:S.csv` --------------------*- C++ -*-===//
#pragma once

#include "compiler/schedule/Schedule.h"

#include <optional>
#include <string>

namespace pipec {

/// The path in "file:PATH", nothing for another strategy.
std::optional<std::string> orderFileOf(const std::string &strategy);

/// Throws Failure(BadPlan) for a right order that `--strategy file:` refuses
/// all the same: a rank has nothing to do, or an edge's messages are not taken
/// as they are sent. It names `order.name`, line and column of `text`.
void expectRunnable(const schedule::Schedule &order, const std::string &text);

/// The order of tasks in a CSV file, one line a rank, which says also where
/// stages live; named like the file. Proven to run: all tasks, dependencies, no
/// deadlock, each edge's messages in order. Throws Failure(NoInput), and
/// Failure(BadPlan) that names line and column.
schedule::Schedule readOrderFile(const std::string &path);

} // namespace pipec
