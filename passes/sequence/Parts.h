//===- Parts.h - what part of a tensor a piece is ---------------*- C++ -*-===//

#pragma once

#include "dialects/nn/NN.h"

#include <optional>

namespace pipec::sequence {

/// What of one dimension a piece of the sequence has.
enum class Part {
  Full,   ///< all of it
  Piece,  ///< the positions of the piece
  Prefix, ///< the positions of the piece and of all before it
};

/// A dimension of size outer * length * inner, of which `part` says what of
/// the positions in its middle is there: reshapes merge the sequence with its
/// neighbours. A full dimension has no middle.
struct Dim {
  Part part = Part::Full;
  int64_t outer = 1, inner = 1;
  bool operator==(const Dim &) const = default;
  /// Only the sequence, merged with nothing.
  bool alone() const { return outer == 1 && inner == 1; }
};

/// One Dim for each dimension of a tensor.
using Parts = llvm::SmallVector<Dim, 5>;

inline Parts allOf(int64_t rank) { return Parts(rank); }
bool has(const Parts &region, Part part);
/// The region with pieces in place of prefixes.
Parts pieceOf(const Parts &region);

/// The pieces of a sequence: piece j has positions [begin(j), end(j)).
struct Pieces {
  int64_t length = 0;
  llvm::SmallVector<int64_t> ends;

  /// `count` of about equal length, the longer ones first: later ones read more
  /// keys.
  static Pieces equal(int64_t length, int64_t count);

  int64_t count() const { return static_cast<int64_t>(ends.size()); }
  int64_t begin(int64_t piece) const { return piece ? ends[piece - 1] : 0; }
  int64_t end(int64_t piece) const { return ends[piece]; }
  int64_t pieceAt(int64_t position) const;
  /// First position of `part` for a piece, and how many there are.
  int64_t first(Part part, int64_t piece) const {
    return part == Part::Piece ? begin(piece) : 0;
  }
  int64_t size(Part part, int64_t piece) const {
    return part == Part::Full ? length : end(piece) - first(part, piece);
  }
};

/// The shape that `region` of a tensor of shape `whole` has for a piece.
llvm::SmallVector<int64_t> shapeOf(llvm::ArrayRef<int64_t> whole,
                                   const Parts &region, const Pieces &pieces,
                                   int64_t piece);

/// The region of x that makes `region` of y = reshape(x); nothing where a
/// dimension of x has only a part of the sequence in it.
std::optional<Parts> throughReshape(llvm::ArrayRef<int64_t> y,
                                    const Parts &region,
                                    llvm::ArrayRef<int64_t> x, int64_t length);

} // namespace pipec::sequence
