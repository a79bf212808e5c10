//===- Ties.h - weights that are copies of each other ------------*- C++
//-*-===//
//
// Exporters fold a transpose into a weight, so that a tied embedding comes as
// two tensors that train apart.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/onnx/Trainable.h"

namespace pipec::onnx {

struct Tie {
  size_t copy, of; ///< positions of two initializers, `of` before `copy`
  bool transposed = false;
};

/// The trained initializers whose elements are those of an earlier one, in the
/// same shape or transposed. Tensors of one value throughout are equal by
/// accident and left out.
std::vector<Tie> findTies(const Model &model,
                          const std::vector<Classification> &classes);

} // namespace pipec::onnx
