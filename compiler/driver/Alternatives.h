//===- Alternatives.h - the same training by other strategies ---*- C++ -*-===//
#pragma once

#include "compiler/driver/Planning.h"
#include "compiler/plan/WhatIf.h"

#include <functional>
#include <string>
#include <vector>

namespace pipec {

/// What `--strategy NAME` would be planned as in place of the strategy that was
/// `chosen`, for every other synchronous one: `options` as the user gave them.
/// Slices of sequences only where --slices asks for them.
std::vector<plan::Alternative> alternatives(
    const CompileOptions &options, const std::string &chosen,
    const std::function<plan::Replanned(const CompileOptions &)> &plan);

} // namespace pipec
