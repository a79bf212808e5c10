//===- PartitionOutput.h - a partition as text, JSON or a drawing -*- C++ -*-=//
#pragma once

#include "compiler/plan/published/Partition.h"

#include <string>

namespace pipec {

std::string partitionText(const published::Partition &partition);
std::string partitionJson(const published::Partition &partition);
/// Graphviz: the graph, one colour a stage.
std::string partitionDot(const published::Partition &partition);

} // namespace pipec
