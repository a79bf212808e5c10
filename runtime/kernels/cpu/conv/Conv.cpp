//===- Conv.cpp - the convolution entry points ----------------------------===//
//
// Chooses among the ways to compute a convolution, by shape alone.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/cpu/conv/ConvDirect.h"
#include "runtime/kernels/cpu/conv/ConvGemm.h"
#include "runtime/kernels/cpu/conv/ConvRows.h"
#include "runtime/kernels/cpu/conv/Relayout.h"
#include "runtime/kernels/cpu/conv/Winograd.h"

using namespace pipec::cpu;

namespace {

enum class Path { Direct, Product, Rows, Winograd };

Path pathOf(const PipecConv &d, const ConvShape &s, PipecConvKind which) {
  if (d.dtype == PIPEC_F32 && winogradTakes(s, which))
    return Path::Winograd;
  if (convRowsTakes(s))
    return Path::Rows;
  return convGemmTakes(s) ? Path::Product : Path::Direct;
}

/// Operands of the product path, which wants plain layouts: blocked ones are
/// copied to the scratch buffer, and back when they are the result. What is
/// left of the buffer is the product's.
template <typename T> class Plain {
public:
  Plain(const ConvShape &s, void *scratch)
      : shape(s), images(s.n), next(static_cast<T *>(scratch)), x(s.x), y(s.y) {
    shape.x.blocked = shape.y.blocked = false;
  }

  /// Elements of scratch.
  static int64_t elements(const ConvShape &s) {
    return (s.x.blocked ? sizeOf(s.x, s.n) : 0) +
           (s.y.blocked ? sizeOf(s.y, s.n) : 0);
  }

  const T *input(const Layout &l, const void *data) {
    const T *from = static_cast<const T *>(data);
    if (!l.blocked)
      return from;
    T *to = take(l);
    toPlain(l, images, from, to);
    return to;
  }
  T *output(const Layout &l, void *data) {
    return l.blocked ? take(l) : static_cast<T *>(data);
  }
  void finish(const Layout &l, const T *plain, void *data) {
    if (l.blocked)
      toBlocked(l, images, plain, static_cast<T *>(data));
  }

  T *rest() const { return next; }

  ConvShape shape; ///< with plain layouts

private:
  static int64_t sizeOf(const Layout &l, int64_t images) {
    return roundUp(images * l.channels * l.plane, kChannelBlock);
  }
  T *take(const Layout &l) {
    T *from = next;
    next += sizeOf(l, images);
    return from;
  }

  int64_t images;
  T *next;

public:
  const Layout x, y; ///< as the caller has them
};

template <typename T>
void forward(const PipecConv &d, const void *x, const void *w, void *y,
             void *scratch) {
  const ConvShape s(d);
  const T *weights = static_cast<const T *>(w);
  const Path path = pathOf(d, s, PIPEC_CONV_FORWARD);
  if (path == Path::Direct)
    return convDirectForward(s, static_cast<const T *>(x), weights,
                             static_cast<T *>(y));
  Plain<T> plain(s, scratch);
  const T *in = plain.input(plain.x, x);
  T *out = plain.output(plain.y, y);
  path == Path::Rows ? convRowsForward(plain.shape, in, weights, out)
                     : convGemmForward(plain.shape, in, weights, out);
  plain.finish(plain.y, out, y);
}

template <typename T>
void backwardInput(const PipecConv &d, const void *dy, const void *w, void *dx,
                   void *scratch) {
  const ConvShape s(d);
  const T *weights = static_cast<const T *>(w);
  const Path path = pathOf(d, s, PIPEC_CONV_BACKWARD_INPUT);
  if (path == Path::Direct)
    return convDirectBackwardInput(s, static_cast<const T *>(dy), weights,
                                   static_cast<T *>(dx));
  Plain<T> plain(s, scratch);
  const T *in = plain.input(plain.y, dy);
  T *out = plain.output(plain.x, dx);
  path == Path::Rows
      ? convRowsBackwardInput(plain.shape, in, weights, out)
      : convGemmBackwardInput(plain.shape, in, weights, out, plain.rest());
  plain.finish(plain.x, out, dx);
}

template <typename T>
void backwardWeight(const PipecConv &d, const void *x, const void *dy, void *dw,
                    void *scratch) {
  const ConvShape s(d);
  T *result = static_cast<T *>(dw);
  const bool accumulate = d.accumulate != 0;
  const Path path = pathOf(d, s, PIPEC_CONV_BACKWARD_WEIGHT);
  if (path == Path::Direct)
    return convDirectBackwardWeight(s, static_cast<const T *>(x),
                                    static_cast<const T *>(dy), result,
                                    accumulate);
  Plain<T> plain(s, scratch);
  const T *in = plain.input(plain.x, x), *grad = plain.input(plain.y, dy);
  path == Path::Rows
      ? convRowsBackwardWeight(plain.shape, in, grad, result, accumulate)
      : convGemmBackwardWeight(plain.shape, in, grad, result, accumulate,
                               plain.rest());
}

bool byWinograd(const PipecConv &d, const ConvShape &s, PipecConvKind which) {
  return pathOf(d, s, which) == Path::Winograd;
}

} // namespace

extern "C" int32_t pipec_conv_path(const PipecConv *d, int32_t which) {
  switch (pathOf(*d, ConvShape(*d), static_cast<PipecConvKind>(which))) {
  case Path::Direct:
    return PIPEC_CONV_DIRECT;
  case Path::Product:
    return PIPEC_CONV_PRODUCT;
  case Path::Rows:
    return PIPEC_CONV_ROWS;
  case Path::Winograd:
    return PIPEC_CONV_WINOGRAD;
  }
  return PIPEC_CONV_DIRECT;
}

extern "C" int64_t pipec_conv_scratch_bytes(const PipecConv *d, int32_t which) {
  const ConvShape s(*d);
  const PipecConvKind kind = static_cast<PipecConvKind>(which);
  switch (pathOf(*d, s, kind)) {
  case Path::Direct:
    return 0;
  case Path::Winograd:
    return winogradScratchBytes(s, kind);
  case Path::Rows:
  case Path::Product:
    break;
  }
  const int64_t elements =
      Plain<float>::elements(s) + (pathOf(*d, s, kind) == Path::Product
                                       ? convGemmScratchElements(s, kind)
                                       : 0);
  return elements *
         int64_t(d->dtype == PIPEC_F64 ? sizeof(double) : sizeof(float));
}

extern "C" void pipec_prepare_conv(PipecConv *d, int32_t which) {
  pipec_prepare_kernels();
}

extern "C" void pipec_release_conv(PipecConv *d) { d->prepared = nullptr; }

extern "C" void pipec_conv_forward(PipecConv *d, const void *x, const void *w,
                                   void *y, void *scratch) {
  if (d->dtype == PIPEC_F64)
    return forward<double>(*d, x, w, y, scratch);
  const ConvShape s(*d);
  if (byWinograd(*d, s, PIPEC_CONV_FORWARD))
    return winogradForward(
        s, static_cast<const float *>(x), static_cast<const float *>(w),
        static_cast<float *>(y), static_cast<float *>(scratch));
  forward<float>(*d, x, w, y, scratch);
}

extern "C" void pipec_conv_backward_input(PipecConv *d, const void *dy,
                                          const void *w, void *dx,
                                          void *scratch) {
  if (d->dtype == PIPEC_F64)
    return backwardInput<double>(*d, dy, w, dx, scratch);
  const ConvShape s(*d);
  if (byWinograd(*d, s, PIPEC_CONV_BACKWARD_INPUT))
    return winogradBackwardInput(
        s, static_cast<const float *>(dy), static_cast<const float *>(w),
        static_cast<float *>(dx), static_cast<float *>(scratch));
  backwardInput<float>(*d, dy, w, dx, scratch);
}

extern "C" void pipec_conv_backward_weight(PipecConv *d, const void *x,
                                           const void *dy, void *dw,
                                           void *scratch) {
  if (d->dtype == PIPEC_F64)
    return backwardWeight<double>(*d, x, dy, dw, scratch);
  const ConvShape s(*d);
  if (byWinograd(*d, s, PIPEC_CONV_BACKWARD_WEIGHT))
    return winogradBackwardWeight(s, static_cast<const float *>(x),
                                  static_cast<const float *>(dy),
                                  static_cast<float *>(dw), d->accumulate != 0,
                                  static_cast<float *>(scratch));
  backwardWeight<float>(*d, x, dy, dw, scratch);
}
