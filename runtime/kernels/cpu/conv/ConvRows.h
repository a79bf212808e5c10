//===- ConvRows.h - convolution of few channels per group -------*- C++ -*-===//
//
// Depthwise convolutions and small groups: no operand of a product is large
// enough there to pay for packing. Rows of the image are copied with their
// padding into the thread's scratch (split by remainder modulo the stride, so
// that neighbouring outputs read neighbouring elements), and an output row is a
// weighted sum of such rows. Plain layouts; no scratch.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/conv/ConvShape.h"

namespace pipec::cpu {

/// Whether this is the way for the shape: few channels per group, and the rows
/// of a window fit into the thread's scratch.
bool convRowsTakes(const ConvShape &s);

template <typename T>
void convRowsForward(const ConvShape &s, const T *x, const T *w, T *y);
template <typename T>
void convRowsBackwardInput(const ConvShape &s, const T *dy, const T *w, T *dx);
template <typename T>
void convRowsBackwardWeight(const ConvShape &s, const T *x, const T *dy, T *dw,
                            bool accumulate);

} // namespace pipec::cpu
