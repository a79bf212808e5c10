//===- ConvDirect.h - convolution by its definition -------------*- C++ -*-===//
//
// Portable loops for any shape, layout and element type: double precision for
// gradient checks, and whatever the fast paths decline. No scratch.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/conv/ConvShape.h"

namespace pipec::cpu {

template <typename T>
void convDirectForward(const ConvShape &s, const T *x, const T *w, T *y);
template <typename T>
void convDirectBackwardInput(const ConvShape &s, const T *dy, const T *w,
                             T *dx);
template <typename T>
void convDirectBackwardWeight(const ConvShape &s, const T *x, const T *dy,
                              T *dw, bool accumulate);

} // namespace pipec::cpu
