//===- Winograd.h - 3 x 3 convolution with 16/36 of the products -*- C++ -*-==//
//
// For single precision, stride 1, dilation 1, one group, both layouts, where it
// pays. The error grows by a small factor over the direct sum (the transforms
// add and subtract neighbouring inputs), and a not-finite value spreads to the
// whole 2 x 2 tiles it meets.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/conv/ConvShape.h"

namespace pipec::cpu {

/// By shape alone.
bool winogradTakes(const ConvShape &s, PipecConvKind which);
int64_t winogradScratchBytes(const ConvShape &s, PipecConvKind which);

void winogradForward(const ConvShape &s, const float *x, const float *w,
                     float *y, float *scratch);
void winogradBackwardInput(const ConvShape &s, const float *dy, const float *w,
                           float *dx, float *scratch);
void winogradBackwardWeight(const ConvShape &s, const float *x, const float *dy,
                            float *dw, bool accumulate, float *scratch);

} // namespace pipec::cpu
