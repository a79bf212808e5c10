//===- Conv.cpp - the convolution entry points ----------------------------===//

#include "runtime/kernels/cpu/conv/ConvDirect.h"
#include "runtime/kernels/cpu/conv/ConvGemm.h"

using namespace pipec::cpu;

namespace {

bool useGemm(const ConvShape &s) {
  return !s.x.blocked && !s.y.blocked && convGemmTakes(s);
}

template <typename T>
void forward(const ConvShape &s, const T *x, const T *w, T *y) {
  useGemm(s) ? convGemmForward(s, x, w, y) : convDirectForward(s, x, w, y);
}

template <typename T>
void backwardInput(const ConvShape &s, const T *dy, const T *w, T *dx) {
  useGemm(s) ? convGemmBackwardInput(s, dy, w, dx)
             : convDirectBackwardInput(s, dy, w, dx);
}

template <typename T>
void backwardWeight(const ConvShape &s, const T *x, const T *dy, T *dw,
                    bool accumulate) {
  useGemm(s) ? convGemmBackwardWeight(s, x, dy, dw, accumulate)
             : convDirectBackwardWeight(s, x, dy, dw, accumulate);
}

/// Calls body.operator()<T>() for the descriptor's element type.
template <typename Body> void byType(const PipecConv &d, const Body &body) {
  d.dtype == PIPEC_F64 ? body.template operator()<double>()
                       : body.template operator()<float>();
}

} // namespace

extern "C" int64_t pipec_conv_scratch_bytes(const PipecConv *d, int32_t which) {
  return 0;
}

extern "C" void pipec_prepare_conv(PipecConv *d, int32_t which) {}

extern "C" void pipec_release_conv(PipecConv *d) { d->prepared = nullptr; }

extern "C" void pipec_conv_forward(PipecConv *d, const void *x, const void *w,
                                   void *y, void *scratch) {
  byType(*d, [&]<typename T>() {
    forward(ConvShape(*d), static_cast<const T *>(x), static_cast<const T *>(w),
            static_cast<T *>(y));
  });
}

extern "C" void pipec_conv_backward_input(PipecConv *d, const void *dy,
                                          const void *w, void *dx,
                                          void *scratch) {
  byType(*d, [&]<typename T>() {
    backwardInput(ConvShape(*d), static_cast<const T *>(dy),
                  static_cast<const T *>(w), static_cast<T *>(dx));
  });
}

extern "C" void pipec_conv_backward_weight(PipecConv *d, const void *x,
                                           const void *dy, void *dw,
                                           void *scratch) {
  byType(*d, [&]<typename T>() {
    backwardWeight(ConvShape(*d), static_cast<const T *>(x),
                   static_cast<const T *>(dy), static_cast<T *>(dw),
                   d->accumulate != 0);
  });
}
