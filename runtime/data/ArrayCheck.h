//===- ArrayCheck.h - whether an array goes with an input -------*- C++ -*-===//
#pragma once

#include "runtime/data/Npy.h"
#include "runtime/program/Plan.h"

namespace pipec {

/// Type and shape, but for the number of samples. An int32 array goes with an
/// int64 input: its values are widened as they are read.
/// Failure(BadModel) says what the input takes, what the file has, and how to
/// make the one of the other.
void checkArray(const plan::Input &input, const Npy &array);

/// "[4, 64]"
std::string shapeText(const std::vector<int64_t> &shape);

} // namespace pipec
