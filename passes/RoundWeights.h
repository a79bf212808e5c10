//===- RoundWeights.h - weights that are kept rounded, too ------*- C++ -*-===//
//
// With --precision bf16 products read a weight rounded. Rounded in every task
// that reads it, it costs a pass over it for each microbatch, forward and
// backward: as much as the product itself where microbatches are small. Kept
// beside the weight in its region it is written once a step, by the update.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "dialects/nn/NN.h"

namespace pipec {

/// The trained weight that `cast` rounds to bf16, directly or behind views, and
/// that is worth a copy; null for other casts. Vectors are not: the kernel that
/// rounds a bias also has it in f32. What only products could read through a
/// view is not either where something else does: it would be copied again.
nn::WeightOp roundedWeight(nn::CastOp cast);

} // namespace pipec
