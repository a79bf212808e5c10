//===- MaskFacts.h - what a mask does to later positions --------*- C++ -*-===//
//
// A piece of a causal sequence needs no keys behind its own last position: the
// mask takes their weight to exactly 0. Whether it does is read off the values
// of constants and followed through the ops that lead to the softmax.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "passes/KnownValues.h"
#include "passes/sequence/Parts.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>

namespace pipec::sequence {

/// What is true of all elements of a tensor whose position in its `key`
/// dimension lies behind the piece that its position in its `query` dimension
/// belongs to.
enum class Later {
  Unknown,
  False, ///< i1
  True,  ///< i1
  Zero,
  Low, ///< at most kLow: exp of it is 0 beside any score in use
};

/// A number that masks. e^x is 0 in fp32 below -104; scores stay above -1e9.
constexpr double kLow = -1e9;

class MaskFacts {
public:
  /// Facts of every value of `main` that has two dimensions of the sequence's
  /// length.
  MaskFacts(mlir::func::FuncOp main, const Pieces &pieces);

  Later of(mlir::Value v, int64_t query, int64_t key) const;

private:
  using Pair = std::pair<int64_t, int64_t>;
  Later derive(mlir::Operation *op, int64_t query, int64_t key);
  Later elementwise(mlir::Operation *op, int64_t query, int64_t key);
  Later valuesOf(mlir::Operation *op, int64_t query, int64_t key);
  Later check(const nn::Literal &literal, int64_t query, int64_t key) const;

  const Pieces &pieces;
  Sources sources;
  KnownValues values;
  llvm::DenseMap<mlir::Value, std::map<Pair, Later>> facts;
  std::map<std::pair<const nn::Literal *, Pair>, Later> read;
};

} // namespace pipec::sequence
