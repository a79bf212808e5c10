//===- ExpandAttention.cpp - attention by products and rows ---------------===//
#include "compiler/target/fusion/ExpandAttention.h"
#include "dialects/nn/Build.h"

#include <limits>

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

namespace {
/// Of an attention or its gradient: operands as wide as the row statistics, and
/// the scores.
template <typename Op> class Rows {
public:
  Rows(NNBuilder &b, Op op)
      : b(b), op(op), q(wide(op.getQ())), k(wide(op.getK())),
        v(wide(op.getV())), scores(product(q, k, false, true)) {
    scores = mulScalar(b, scores, op.getScale().convertToDouble());
    if (op.getBias())
      scores = nn::add(b, scores, op.getBias());
    if (op.getCausal()) {
      auto type = tensorType(scores);
      auto numbers = type.clone(b.getI32Type());
      const int64_t rank = type.getRank();
      Value isSeen = compare(b, "le", iota(b, numbers, rank - 1),
                             iota(b, numbers, rank - 2));
      scores = select(b, isSeen, scores,
                      splat(b, type, -std::numeric_limits<double>::infinity()));
    }
  }

  Value wide(Value x) {
    Type q = tensorType(op.getQ()).getElementType();
    return nn::cast(b, x, q.isF64() ? q : b.getF32Type());
  }
  Value product(Value x, Value y, bool transposeX, bool transposeY) {
    return matmul(b, x, y, transposeX, transposeY);
  }
  Value spread(Value row) {
    return broadcast(b, row, tensorType(scores).getShape());
  }
  Value rows(StringRef kind, Value x) {
    return reduce(b, kind, x, {tensorType(x).getRank() - 1});
  }
  /// Rows without any score are NaN, or zero.
  Value settled(Value weights) {
    if (!op.getZeroRows())
      return weights;
    return select(b, IsNanOp::create(b, weights), splatLike(b, weights, 0),
                  weights);
  }
  Value weights() {
    Value powers = nn::exp(b, sub(b, scores, spread(op.getTops())));
    return settled(mul(b, powers, spread(op.getShares())));
  }
  /// Gradient of the scores, times the scale.
  Value gradient(Value weights) {
    Value dy = wide(op.getDy());
    Value centred = sub(b, product(dy, v, false, true), spread(op.getDelta()));
    if (op.getReplaces())
      centred = mul(b, centred, spread(hasScores()));
    return mulScalar(b, mul(b, weights, centred),
                     op.getScale().convertToDouble());
  }

  /// 0 for rows in which a bias replaces every score that has a weight, else 1.
  Value hasScores() {
    Value tops = op.getTops();
    Value replaced =
        compare(b, "eq", tops,
                splatLike(b, tops, std::numeric_limits<float>::lowest()));
    return select(b, replaced, splatLike(b, tops, 0), splatLike(b, tops, 1));
  }

  NNBuilder &b;
  Op op;
  Value q, k, v, scores;
};
} // namespace

static void replace(NNBuilder &b, Value old, Value by) {
  old.replaceAllUsesWith(nn::cast(b, by, tensorType(old).getElementType()));
}

static void expand(NNBuilder &b, AttentionOp op) {
  Rows<AttentionOp> r(b, op);
  Value top = r.rows("max", r.scores);
  Value e = nn::exp(b, sub(b, r.scores, r.spread(top)));
  Value sum = r.rows("sum", e);
  Value share = ReciprocalOp::create(b, sum);
  Value weights = r.settled(mul(b, e, r.spread(share)));
  replace(b, op.getY(), r.product(weights, r.v, false, false));
  replace(b, op.getTops(), top);
  replace(b, op.getShares(), share);
}

static void expand(NNBuilder &b, AttentionGradQueryOp op) {
  Rows<AttentionGradQueryOp> r(b, op);
  replace(b, op.getDq(), r.product(r.gradient(r.weights()), r.k, false, false));
}

static void expand(NNBuilder &b, AttentionGradKeysOp op) {
  Rows<AttentionGradKeysOp> r(b, op);
  Value weights = r.weights();
  replace(b, op.getDv(), r.product(weights, r.wide(op.getDy()), true, false));
  replace(b, op.getDk(), r.product(r.gradient(weights), r.q, true, false));
}

void fusion::expandAttention(func::FuncOp func,
                             llvm::function_ref<bool(Operation *)> isKept) {
  for (Operation &op : llvm::make_early_inc_range(func.getBody().front())) {
    if (!isa<AttentionOp, AttentionGradQueryOp, AttentionGradKeysOp>(op) ||
        (isKept && isKept(&op)))
      continue;
    NNBuilder b(op.getLoc(), &op);
    if (auto attention = dyn_cast<AttentionOp>(op))
      expand(b, attention);
    else if (auto query = dyn_cast<AttentionGradQueryOp>(op))
      expand(b, query);
    else
      expand(b, cast<AttentionGradKeysOp>(op));
    op.erase();
  }
}
