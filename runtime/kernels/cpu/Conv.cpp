//===- Conv.cpp - the convolution entry points ----------------------------===//

#include "runtime/kernels/cpu/ConvDirect.h"

using namespace pipec::cpu;

extern "C" int64_t pipec_conv_scratch_bytes(const PipecConv *d, int32_t which) {
  return 0;
}

extern "C" void pipec_prepare_conv(PipecConv *d, int32_t which) {}

extern "C" void pipec_release_conv(PipecConv *d) { d->prepared = nullptr; }

extern "C" void pipec_conv_forward(PipecConv *d, const void *x, const void *w,
                                   void *y, void *scratch) {
  const ConvShape s(*d);
  if (d->dtype == PIPEC_F64)
    return convDirectForward(s, static_cast<const double *>(x),
                             static_cast<const double *>(w),
                             static_cast<double *>(y));
  convDirectForward(s, static_cast<const float *>(x),
                    static_cast<const float *>(w), static_cast<float *>(y));
}

extern "C" void pipec_conv_backward_input(PipecConv *d, const void *dy,
                                          const void *w, void *dx,
                                          void *scratch) {
  const ConvShape s(*d);
  if (d->dtype == PIPEC_F64)
    return convDirectBackwardInput(s, static_cast<const double *>(dy),
                                   static_cast<const double *>(w),
                                   static_cast<double *>(dx));
  convDirectBackwardInput(s, static_cast<const float *>(dy),
                          static_cast<const float *>(w),
                          static_cast<float *>(dx));
}

extern "C" void pipec_conv_backward_weight(PipecConv *d, const void *x,
                                           const void *dy, void *dw,
                                           void *scratch) {
  const ConvShape s(*d);
  const bool accumulate = d->accumulate != 0;
  if (d->dtype == PIPEC_F64)
    return convDirectBackwardWeight(s, static_cast<const double *>(x),
                                    static_cast<const double *>(dy),
                                    static_cast<double *>(dw), accumulate);
  convDirectBackwardWeight(s, static_cast<const float *>(x),
                           static_cast<const float *>(dy),
                           static_cast<float *>(dw), accumulate);
}
