//===- Relayout.cpp - plain <-> blocked activations -----------------------===//

#include "runtime/kernels/cpu/conv/Relayout.h"
#include "runtime/kernels/cpu/Parallel.h"
#include "runtime/kernels/cpu/level/MicroKernels.h"

namespace pipec::cpu {
namespace {

/// Calls body(offset of a block in the plain tensor, in the blocked one,
/// channels in it) for every block of channels of every image.
template <typename Body>
void forEachBlock(const Layout &l, int64_t images, const Body &body) {
  const int64_t blocks = roundUp(l.channels, kChannelBlock) / kChannelBlock;
  const int64_t grain = 8192 / (l.plane * kChannelBlock + 1) + 1;
  parallelFor(images * blocks, grain, [&](int64_t item) {
    const int64_t image = item / blocks, c = item % blocks * kChannelBlock;
    body((image * l.channels + c) * l.plane, item * l.plane * kChannelBlock,
         std::min(kChannelBlock, l.channels - c));
  });
}

} // namespace

template <typename T>
void toPlain(const Layout &l, int64_t images, const T *blocked, T *plain) {
  forEachBlock(l, images, [&](int64_t to, int64_t from, int64_t channels) {
    microKernels<T>().transpose(plain + to, l.plane, blocked + from,
                                kChannelBlock, l.plane, channels);
  });
}

template <typename T>
void toBlocked(const Layout &l, int64_t images, const T *plain, T *blocked) {
  forEachBlock(l, images, [&](int64_t from, int64_t to, int64_t channels) {
    microKernels<T>().packLines(blocked + to, kChannelBlock, plain + from,
                                l.plane, channels, l.plane);
  });
}

template void toPlain(const Layout &, int64_t, const float *, float *);
template void toPlain(const Layout &, int64_t, const double *, double *);
template void toBlocked(const Layout &, int64_t, const float *, float *);
template void toBlocked(const Layout &, int64_t, const double *, double *);

} // namespace pipec::cpu
