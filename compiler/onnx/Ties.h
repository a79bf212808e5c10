//===- Ties.h - weights that are copies of each other -----------*- C++ -*-===//
//
// Exporters fold a transpose into a weight, so that a tied embedding comes as
// two tensors that train apart; and the batch they were given, so that a weight
// comes as one copy a sample.
//
//===----------------------------------------------------------------------===//

#pragma once

#include "compiler/onnx/Trainable.h"

namespace pipec::onnx {

struct Tie {
  size_t copy, of; ///< positions of two initializers, `of` before `copy`
  bool transposed = false;
};

/// Whether the first dimension of a trained tensor repeats the same weights, no
/// constants, and an exporter made it so.
bool isRepeated(const Model &model, const TensorData &tensor,
                const Classification &classification);
/// The first of the repetitions: dimension 0 is 1.
TensorData firstRepetition(const TensorData &tensor);

/// The trained initializers whose elements are those of an earlier one, in the
/// same shape but for dimensions of size 1, or transposed. Tensors of one value
/// throughout are equal by accident and left out.
std::vector<Tie> findTies(const Model &model,
                          const std::vector<Classification> &classes);

} // namespace pipec::onnx
