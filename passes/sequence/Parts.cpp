//===- Parts.cpp - which part of a tensor a piece of a sequence is --------===//
#include "passes/sequence/Parts.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace pipec::sequence {

bool has(const Parts &region, Part part) {
  return any_of(region, [&](const Dim &dim) { return dim.part == part; });
}

Parts pieceOf(const Parts &region) {
  Parts result = region;
  for (Dim &dim : result)
    if (dim.part == Part::Prefix)
      dim.part = Part::Piece;
  return result;
}

Pieces Pieces::equal(int64_t length, int64_t count) {
  Pieces pieces;
  pieces.length = length;
  int64_t end = 0;
  for (int64_t j = 0; j < count; ++j)
    pieces.ends.push_back(end += length / count + (j < length % count));
  return pieces;
}

int64_t Pieces::pieceAt(int64_t position) const {
  return upper_bound(ends, position) - ends.begin();
}

SmallVector<int64_t> shapeOf(ArrayRef<int64_t> whole, const Parts &region,
                             const Pieces &pieces, int64_t piece) {
  SmallVector<int64_t> shape(whole);
  for (auto [size, dim] : zip(shape, region))
    if (dim.part != Part::Full)
      size = dim.outer * pieces.size(dim.part, piece) * dim.inner;
  return shape;
}

std::optional<Parts> throughReshape(ArrayRef<int64_t> y, const Parts &region,
                                    ArrayRef<int64_t> x, int64_t length) {
  Parts result = allOf(static_cast<int64_t>(x.size()));
  for (size_t d = 0; d < y.size(); ++d) {
    if (region[d].part == Part::Full)
      continue;
    // Elements before and behind the sequence, in row-major order.
    int64_t before =
        mlir::ShapedType::getNumElements(y.take_front(d)) * region[d].outer;
    int64_t behind =
        region[d].inner * mlir::ShapedType::getNumElements(y.drop_front(d + 1));
    bool found = false;
    for (size_t e = 0; e < x.size() && !found; ++e) {
      int64_t left = mlir::ShapedType::getNumElements(x.take_front(e)),
              right = mlir::ShapedType::getNumElements(x.drop_front(e + 1));
      if (before % left || behind % right ||
          before / left * length * (behind / right) != x[e])
        continue;
      if (result[e].part != Part::Full)
        return std::nullopt; // both sequences in one dimension
      result[e] = {region[d].part, before / left, behind / right};
      found = true;
    }
    if (!found)
      return std::nullopt;
  }
  return result;
}

} // namespace pipec::sequence
