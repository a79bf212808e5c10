//===- ConvShape.h - a convolution descriptor in three dimensions -*- C++ -*-=//
//
// One form for 1-D, 2-D and 3-D convolutions, and the element addresses of both
// activation layouts.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/Kernels.h"
#include "runtime/kernels/cpu/Spatial.h"

#include <algorithm>
#include <cstdint>

namespace pipec::cpu {

constexpr int64_t kChannelBlock = 16;

constexpr int64_t roundUp(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

/// How an activation of `channels` channels and `plane` positions lies in
/// memory.
struct Layout {
  bool blocked;
  int64_t channels, plane;

  /// Distance of neighbouring positions of one channel.
  int64_t step() const { return blocked ? kChannelBlock : 1; }
  /// Elements of one image.
  int64_t image() const {
    return plane * (blocked ? roundUp(channels, kChannelBlock) : channels);
  }
  /// Address of position 0 of channel `c` of image `n`.
  int64_t at(int64_t n, int64_t c) const {
    return n * image() + (blocked ? c / kChannelBlock * kChannelBlock * plane +
                                        c % kChannelBlock
                                  : c * plane);
  }
};

/// The descriptor with missing spatial axes added in front.
struct ConvShape : Spatial {
  int64_t n, c, o, groups;
  Layout x, y;

  explicit ConvShape(const PipecConv &d)
      : Spatial(d), n(d.n), c(d.c), o(d.o),
        groups(std::max<int64_t>(d.groups, 1)) {
    x = {d.x_layout == PIPEC_BLOCKED, c, inPlane};
    y = {d.y_layout == PIPEC_BLOCKED, o, outPlane};
    mergeTrivialAxes();
  }

  int64_t groupIn() const { return c / groups; }
  int64_t groupOut() const { return o / groups; }
  /// Elements of the weights.
  int64_t weights() const { return o * groupIn() * taps; }

  /// The output positions [first, last) of axis `a` for which tap `q` lies in
  /// the input.
  struct Range {
    int64_t first, last;
  };
  Range reach(int a, int64_t q) const {
    const int64_t start = q * dilation[a] - lo[a]; // input at output 0
    const int64_t first = start >= 0 ? 0 : (-start - 1) / stride[a] + 1;
    const int64_t room = in[a] - start;
    const int64_t last =
        room <= 0 ? 0 : std::min(out[a], (room - 1) / stride[a] + 1);
    return {std::min(first, out[a]), std::max(std::min(first, out[a]), last)};
  }

private:
  /// Whether output position p of axis `a` reads input position p alone.
  bool trivial(int a) const {
    return kernel[a] == 1 && stride[a] == 1 && lo[a] == 0 && in[a] == out[a];
  }
  /// Rows as long as possible: a 1 x 1 convolution has one.
  void mergeTrivialAxes() {
    for (int a = 1; a >= 0 && trivial(2) && trivial(a); --a) {
      in[2] = out[2] = in[2] * in[a];
      in[a] = out[a] = 1;
    }
  }
};

} // namespace pipec::cpu
