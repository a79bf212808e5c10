//===- Values.h - what the numbers of a tensor look like --------*- C++ -*-===//
//
// Where nothing else says which tensors are weights, their numbers may: tables
// and masks have a pattern, what was drawn has none. What is asked of elements
// that cannot be had is false.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/onnx/Model.h"

namespace pipec::onnx {

/// Distinct elements, counted up to three; three where they cannot be had. Of
/// tensors too large to be masks, tables or scales, evenly spaced parts stand
/// for the whole, so that weights of many gigabytes are not read through.
int distinctValues(const Model &model, const TensorData &t);

/// Whether all elements of a tensor are equal.
bool isUniform(const Model &model, const TensorData &tensor);

/// Whether a table [..., positions, width] is one of sines and cosines: at
/// position 0 they are zeros and ones, and at every position their squares add
/// up to 1 in pairs. Models keep such tables fixed, also where they call them
/// parameters.
bool isSinusoidal(const Model &model, const TensorData &t);

/// Numbers that were drawn are almost all different, those of a table of
/// coordinates are not. One value throughout says nothing.
bool fewValues(const Model &model, const TensorData &t);

/// Whether a tensor's parts along its first dimension, of which there are
/// several, are equal.
bool repeatsItself(const Model &model, const TensorData &t);

/// Zeros and ones: which elements of something to take.
bool isZeroOne(const Model &model, const TensorData &t);

/// Whether the elements of the last dimension are not all equal.
bool firstRowVaries(const Model &model, const TensorData &t);

/// Whether a factor of several dimensions looks like numbers that were drawn,
/// not like a table, a grid, a mask or anchors: of both signs, a first row that
/// varies, and steps that do.
bool looksDrawn(const Model &model, const TensorData &t);

} // namespace pipec::onnx
