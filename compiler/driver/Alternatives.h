//===- Alternatives.h - the same training by other strategies ---*- C++ -*-===//
#pragma once

#include "compiler/driver/Planning.h"
#include "compiler/plan/WhatIf.h"

#include <vector>

namespace pipec {

/// What `--strategy NAME` would be planned as in place of the strategy that was
/// `chosen`, for every other synchronous one: `options` as the user gave them.
/// Slices of sequences only where --slices asks for them. The graph and the
/// facts are to live as long.
std::vector<plan::Alternative> alternatives(const CompileOptions &options,
                                            const std::string &chosen,
                                            const plan::CostGraph &graph,
                                            const ModelFacts &facts);

} // namespace pipec
