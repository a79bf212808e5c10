//===- GradientNorm.h - clipping by the global norm -------------*- C++ -*-===//
#pragma once

#include "runtime/control/Watch.h"
#include "runtime/exec/RankState.h"

namespace pipec {

/// torch.nn.utils.clip_grad_norm_ over all stages: a norm per weight (a weight
/// with several uses once), their norm, and the coefficient
/// min(1, limit / (norm + 1e-6)).
class GradientNorm {
public:
  GradientNorm(RankState &state, Transport &transport, Watch &watch);

  /// What every gradient is to be multiplied with; the same on all ranks, each
  /// of which must call it.
  double coefficient(double limit, int64_t step);

  /// This rank's part of the norms by weight; 0 where another rank answers.
  void measure(float *norms) const;
  /// The coefficient that these norms of all weights ask for.
  static float coefficientOf(const float *norms, int64_t count, double limit);

private:
  RankState &state;
  Transport &transport;
  Watch &watch;
  /// Stage unit and GRADIENTS offset of the weights this rank answers for.
  struct Owned {
    int weight;
    const float *gradient;
    int64_t elements;
  };
  std::vector<Owned> owned;
  std::vector<float> norms, received; ///< by weight, 0 where another answers
};

/// Square root of the sum of squares, accumulated in double in a fixed order.
double norm(const float *values, int64_t count);

} // namespace pipec
