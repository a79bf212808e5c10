//===- ConvolutionRows.h - convolutions as sums of shifted rows -*- C++ -*-===//
#pragma once

#include "compiler/plan/ConvolutionWork.h"

namespace pipec::plan {

/// Of convolutionWork(), for "rows": as runtime/kernels/cpu/conv/ConvRows.cpp
/// goes through bands of padded rows.
std::vector<double> rowAmounts(const ConvolutionShape &shape,
                               ConvolutionPass pass, const ProductTile &tile);

void addRowAmounts(std::map<std::string, std::vector<std::string>> &amounts);

} // namespace pipec::plan
