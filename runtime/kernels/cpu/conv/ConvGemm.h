//===- ConvGemm.h - convolution as one product per group --------*- C++ -*-===//
//
// For plain layouts.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/conv/ConvShape.h"

namespace pipec::cpu {

/// Whether the product path can take the shape: kernels of ordinary size.
bool convGemmTakes(const ConvShape &s);
/// Elements of scratch (forward takes none).
int64_t convGemmScratchElements(const ConvShape &s, PipecConvKind which);

template <typename T>
void convGemmForward(const ConvShape &s, const T *x, const T *w, T *y);
template <typename T>
void convGemmBackwardInput(const ConvShape &s, const T *dy, const T *w, T *dx,
                           T *scratch);
template <typename T>
void convGemmBackwardWeight(const ConvShape &s, const T *x, const T *dy, T *dw,
                            bool accumulate, T *scratch);

} // namespace pipec::cpu
