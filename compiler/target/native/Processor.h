//===- Processor.h - names of processors that code is made for --*- C++ -*-===//
#pragma once

#include <string>

namespace pipec::target {

/// Failure(Usage) for a name of --target-cpu that is none.
void checkProcessor(const std::string &name);

} // namespace pipec::target
