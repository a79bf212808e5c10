//===- Determinant.cpp - importer of determinants -------------------------===//
//
// Gaussian elimination with full pivoting: each step takes the largest element
// left, and what remains is a matrix of one row and one column less. Where the
// largest is 0 so is all that is left, and nothing is divided; the gradient is
// then that of the adjugate, also of matrices that have no inverse.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ops/Ops.h"

using namespace mlir;

namespace pipec::onnx {
namespace {

/// Every step is some thirty operations.
constexpr int64_t kLargestMatrix = 64;

class Determinant {
public:
  explicit Determinant(Emitter &e) : e(e) {}
  /// Of [matrices, size, size].
  Val of(Val matrices);

private:
  Val index(const Val &like, int64_t axis) {
    return e.iota(RankedTensorType::get(like.getShape(), i64), axis);
  }
  Val largest(const Val &flat);
  Val eliminate(const Val &matrices);

  Emitter &e;
  const Type i64 = e.i64();
  Val product; ///< of the pivots so far with their signs, [matrices]
};

} // namespace

/// The place of the largest element by magnitude, the first among equals, of
/// each row: [matrices, 1].
Val Determinant::largest(const Val &flat) {
  const int64_t count = flat.dim(1);
  const Val size = e.unary<nn::AbsOp>(e.unary<nn::StopGradientOp>(flat));
  const Val top = e.reduce("max", size, {1});
  const Val at = index(flat, 1), last = e.splatLike(at, double(count - 1));
  // Nothing equals NaN.
  return e.reduce("min", e.select(e.compare("eq", size, top), at, last), {1});
}

/// Takes a pivot out of each matrix; what the others have of its row and column
/// is subtracted.
Val Determinant::eliminate(const Val &matrices) {
  const int64_t n = matrices.dim(0), m = matrices.dim(1);
  const Val flat = e.reshape(matrices, {n, m * m});
  const Val all = e.reshape(matrices, {n * m * m});
  const Val at = largest(flat), width = e.splatLike(at, double(m));
  const Val row = e.div(at, width), column = e.sub(at, e.mul(row, width));
  const Val start = e.mul(index(at, 0), double(m * m));
  // 0 ... m - 1 without `skipped`: [matrices, m - 1]
  const auto others = [&](const Val &skipped) {
    const Val i = e.iota(RankedTensorType::get({n, m - 1}, i64), 1);
    return e.add(i, e.cast(e.compare("ge", i, skipped), i64));
  };
  const auto read = [&](const Val &rows, const Val &columns) {
    const Val place =
        e.add(e.mul(e.reshape(rows, {n, rows.dim(1), 1}), double(m)),
              e.reshape(columns, {n, 1, columns.dim(1)}));
    return e.gather(all, e.add(place, e.reshape(start, {n, 1, 1})), 0);
  };
  const Val rows = others(row), columns = others(column);
  const Val pivot = read(row, column);
  const Val safe =
      e.select(e.compare("eq", pivot, 0), e.splatLike(pivot, 1), pivot);
  const Val rest =
      e.sub(read(rows, columns),
            e.mul(e.div(read(rows, column), safe), read(row, columns)));
  const Val parity =
      e.binary<nn::AndOp>(e.add(row, column), e.splatLike(row, 1));
  const Val one = e.reshape(pivot, {n, 1});
  const Val signedPivot =
      e.reshape(e.select(e.compare("eq", parity, 0), one, e.neg(one)), {n});
  product = product ? e.mul(product, signedPivot) : signedPivot;
  return rest;
}

Val Determinant::of(Val matrices) {
  while (matrices.dim(1) > 2)
    matrices = eliminate(matrices);
  const int64_t n = matrices.dim(0);
  const auto at = [&](int64_t i, int64_t j) {
    return e.reshape(e.slice(matrices, {0, i, j}, {n, 1, 1}, {1, 1, 1}), {n});
  };
  const Val last = matrices.dim(1) == 1 ? at(0, 0)
                                        : e.sub(e.mul(at(0, 0), at(1, 1)),
                                                e.mul(at(0, 1), at(1, 0)));
  return product ? e.mul(product, last) : last;
}

void importDet(NodeContext &c) {
  const Val &x = c.floatIn(0);
  const int64_t rank = x.getRank();
  if (rank < 2 || x.dim(rank - 1) != x.dim(rank - 2))
    c.fail("its input " + shapeText(x.getShape()) + " is no square matrix");
  const int64_t size = x.dim(rank - 1);
  if (size < 1 || size > kLargestMatrix)
    c.fail("its matrices have " + std::to_string(size) + " rows, 1 to " +
           std::to_string(kLargestMatrix) + " are supported");
  const ArrayRef<int64_t> batch = x.getShape().drop_back(2);
  const Val flat =
      c.e.reshape(x, {x.type.getNumElements() / (size * size), size, size});
  c.out(c.e.reshape(Determinant(c.e).of(flat), batch));
}

} // namespace pipec::onnx
