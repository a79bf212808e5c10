//===- Spatial.h - what slides over an image --------------------*- C++ -*-===//
#pragma once

#include <cstdint>

namespace pipec::cpu {

/// The window of a convolution or pooling over three spatial axes, those that
/// the descriptor lacks in front, with one position.
struct Spatial {
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], lo[3];
  int64_t inPlane = 1, outPlane = 1, taps = 1;

  template <typename Descriptor> explicit Spatial(const Descriptor &d) {
    const int missing = 3 - d.spatial_rank;
    for (int i = 0; i < 3; ++i) {
      const bool real = i >= missing;
      const int j = real ? i - missing : 0;
      in[i] = real ? d.in[j] : 1;
      out[i] = real ? d.out[j] : 1;
      kernel[i] = real ? d.kernel[j] : 1;
      stride[i] = real ? d.stride[j] : 1;
      dilation[i] = real ? d.dilation[j] : 1;
      lo[i] = real ? d.pad_lo[j] : 0;
      inPlane *= in[i];
      outPlane *= out[i];
      taps *= kernel[i];
    }
  }
};

} // namespace pipec::cpu
