//===- Attention.cpp - evaluation of attention and its gradients ----------===//
#include "dialects/nn/eval/Kernels.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace pipec::nn::eval {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Queries and keys, their scores, and walks over them.
class Attention {
public:
  template <typename Op>
  Attention(Op op, const Context &c)
      : q(c[0].doubles()), k(c[1].doubles()), v(c[2].doubles()),
        scale(op.getScale().convertToDouble()), causal(op.getCausal()),
        zeroRows(op.getZeroRows()) {
    ArrayRef<int64_t> shape = c[0].getShape();
    size = shape.back();
    queries = shape.end()[-2];
    keys = c[1].getShape().end()[-2];
    const int64_t one = queries * size;
    batches = one ? c[0].getNumElements() / one : 0;
    if (op.getBias())
      bias = c.operands.back().doubles();
  }

  double score(int64_t batch, int64_t i, int64_t j) const {
    if (causal && j > i)
      return -kInfinity;
    double sum = 0;
    for (int64_t d = 0; d < size; ++d)
      sum += q[(batch * queries + i) * size + d] *
             k[(batch * keys + j) * size + d];
    sum *= scale;
    return bias.empty() ? sum : sum + bias[(batch * queries + i) * keys + j];
  }
  /// f(row, key row, weight), of the rows' numbers.
  template <typename F>
  void forWeights(const std::vector<double> &tops,
                  const std::vector<double> &shares, F f) const {
    for (int64_t row = 0; row < batches * queries; ++row)
      for (int64_t j = 0, batch = row / queries; j < keys; ++j) {
        const double weight =
            std::exp(score(batch, row % queries, j) - tops[row]) * shares[row];
        f(row, batch * keys + j, std::isnan(weight) && zeroRows ? 0 : weight);
      }
  }
  double product(const std::vector<double> &x, int64_t row,
                 const std::vector<double> &y, int64_t other) const {
    double sum = 0;
    for (int64_t d = 0; d < size; ++d)
      sum += x[row * size + d] * y[other * size + d];
    return sum;
  }
  void add(std::vector<double> &to, int64_t row, double factor,
           const std::vector<double> &from, int64_t other) const {
    for (int64_t d = 0; d < size; ++d)
      to[row * size + d] += factor * from[other * size + d];
  }

  std::vector<double> q, k, v, bias;
  double scale;
  bool causal, zeroRows;
  int64_t batches = 0, queries, keys, size;
};
} // namespace

static Results forward(AttentionOp op, const Context &c) {
  Attention a(op, c);
  std::vector<double> tops, shares, y(a.q.size(), 0);
  for (int64_t row = 0; row < a.batches * a.queries; ++row) {
    double top = -kInfinity, sum = 0;
    for (int64_t j = 0; j < a.keys; ++j)
      top = std::max(top, a.score(row / a.queries, row % a.queries, j));
    for (int64_t j = 0; j < a.keys; ++j)
      sum += std::exp(a.score(row / a.queries, row % a.queries, j) - top);
    tops.push_back(top);
    shares.push_back(1 / sum);
  }
  a.forWeights(tops, shares, [&](int64_t row, int64_t key, double weight) {
    a.add(y, row, weight, a.v, key);
  });
  return {c.floats(resultType(op), std::move(y)),
          c.floats(resultType(op, 1), std::move(tops)),
          c.floats(resultType(op, 2), std::move(shares))};
}

template <typename Op> static Results backward(Op op, const Context &c) {
  Attention a(op, c);
  const std::vector<double> dy = c[3].doubles(), tops = c[4].doubles(),
                            shares = c[5].doubles(), delta = c[6].doubles();
  std::vector<double> dq(a.q.size(), 0), dk(a.k.size(), 0), dv = dk;
  a.forWeights(tops, shares, [&](int64_t row, int64_t key, double weight) {
    const bool isReplaced =
        op.getReplaces() && tops[row] == std::numeric_limits<float>::lowest();
    const double score =
        isReplaced
            ? 0
            : weight * (a.product(dy, row, a.v, key) - delta[row]) * a.scale;
    a.add(dq, row, score, a.k, key);
    a.add(dk, key, score, a.q, row);
    a.add(dv, key, weight, dy, row);
  });
  if (isa<AttentionGradQueryOp>(op))
    return {c.floats(resultType(op), std::move(dq))};
  return {c.floats(resultType(op), std::move(dk)),
          c.floats(resultType(op, 1), std::move(dv))};
}

FailureOr<Results> attention(Operation *op, const Context &c) {
  if (auto attention = dyn_cast<AttentionOp>(op))
    return forward(attention, c);
  if (auto query = dyn_cast<AttentionGradQueryOp>(op))
    return backward(query, c);
  if (auto keys = dyn_cast<AttentionGradKeysOp>(op))
    return backward(keys, c);
  return Results{};
}

} // namespace pipec::nn::eval
