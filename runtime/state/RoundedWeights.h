//===- RoundedWeights.h - copies of weights for products --------*- C++ -*-===//
#pragma once

#include "runtime/exec/RankState.h"

namespace pipec {

/// Rounds the weights of the rank's stages after `steps` steps, all versions
/// that it holds of them, into their copies (plan::Rounded): for who has filled
/// weights in from a file. Updates do it themselves. Waits.
void roundWeights(RankState &state, int64_t steps);

/// One piece, of a version of the weights.
void roundPiece(Device &device, char *weights, const plan::Rounded &piece);

} // namespace pipec
