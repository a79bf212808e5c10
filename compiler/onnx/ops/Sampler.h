//===- Sampler.h - images read between their elements -----------*- C++ -*-===//
//
// What lies between the elements of an image is a weighed sum of 2 or 4
// elements an axis (or the nearest one), read by gathers.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/onnx/Emitter.h"

namespace pipec::onnx {

class Sampler {
public:
  /// `mode`: linear, nearest or cubic. `padding`: zeros, border or reflection.
  /// `aligned`: an image ends in the middle of its outermost elements.
  Sampler(Emitter &e, llvm::ArrayRef<int64_t> sizes, std::string mode,
          std::string padding, bool aligned)
      : e(e), sizes(sizes), mode(std::move(mode)), padding(std::move(padding)),
        aligned(aligned) {}

  /// `rows`: [images * plane, channels]. `image` (integers) and `places`, one
  /// an axis, have one shape; the result has it too, with channels behind.
  Val sample(const Val &rows, const Val &image, llvm::ArrayRef<Val> places);

private:
  /// What one tap of one axis contributes: an index, a weight (null: 1), and
  /// whether it lies in the image (null: always).
  struct Tap {
    Val index, weight, inside;
  };
  Val reflect(const Val &x, int64_t size);
  Tap tapAt(const Val &place, int64_t size);
  std::vector<Tap> taps(Val place, int64_t size);
  void addCorners(size_t axis, const Val &rows, const Tap &soFar);

  Emitter &e;
  llvm::SmallVector<int64_t> sizes;
  std::string mode, padding;
  bool aligned;
  std::vector<std::vector<Tap>> axes;
  Val sum;
};

} // namespace pipec::onnx
