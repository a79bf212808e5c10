//===- Attend.h - attention as a library computes it -----------*- C++ -*-===//
//
// For tests in which a processor does the work of a device: in f32, rounded to
// bf16 where cuDNN rounds, between the products and at the end.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/StageAbi.h"
#include "support/NarrowFloat.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pipec {

/// PipecDevice::attention.
class Attend {
public:
  Attend(const PipecAttention &shape, char *const *at) : shape(shape), at(at) {}

  void run() {
    for (b = 0; b < shape.batch; ++b)
      for (h = 0; h < shape.heads; ++h) {
        makeScores();
        shape.gradient ? gradient() : forward();
      }
  }

private:
  using Matrix = std::vector<double>; ///< of all queries and keys

  uint16_t &element(PipecAttentionTensor which, int64_t row, int64_t column) {
    const int64_t *step = shape.stride[which];
    return reinterpret_cast<uint16_t *>(
        at[which])[b * step[0] + h * step[1] + row * step[2] + column];
  }
  float &number(int which, int64_t row) {
    return reinterpret_cast<float *>(
        at[which])[(b * shape.heads + h) * shape.queries + row];
  }
  double &of(Matrix &matrix, int64_t query, int64_t key) {
    return matrix[static_cast<size_t>(query * shape.keys + key)];
  }
  static double rounded(double x) {
    return fromBfloat(toBfloat(static_cast<float>(x)));
  }
  /// The rows' products.
  double product(PipecAttentionTensor a, int64_t i, PipecAttentionTensor c,
                 int64_t j) {
    double sum = 0;
    for (int64_t k = 0; k < shape.size; ++k)
      sum +=
          double(fromBfloat(element(a, i, k))) * fromBfloat(element(c, j, k));
    return sum;
  }
  /// Row `row` of `to` = the sum of weights(j) times row j of `from`.
  template <typename Weight>
  void mix(PipecAttentionTensor to, int64_t row, PipecAttentionTensor from,
           int64_t count, Weight weight) {
    for (int64_t k = 0; k < shape.size; ++k) {
      double sum = 0;
      for (int64_t j = 0; j < count; ++j)
        sum += rounded(weight(j)) * fromBfloat(element(from, j, k));
      element(to, row, k) = toBfloat(static_cast<float>(sum));
    }
  }

  void makeScores() {
    scores.assign(static_cast<size_t>(shape.queries * shape.keys), -INFINITY);
    for (int64_t i = 0; i < shape.queries; ++i)
      for (int64_t j = 0; j < (shape.causal ? i + 1 : shape.keys); ++j)
        of(scores, i, j) =
            shape.scale * product(PIPEC_ATTENTION_Q, i, PIPEC_ATTENTION_K, j);
  }

  void forward() {
    for (int64_t i = 0; i < shape.queries; ++i) {
      double top = -INFINITY, sum = 0;
      for (int64_t j = 0; j < shape.keys; ++j)
        top = std::max(top, of(scores, i, j));
      for (int64_t j = 0; j < shape.keys; ++j)
        sum += std::exp(of(scores, i, j) - top);
      mix(PIPEC_ATTENTION_Y, i, PIPEC_ATTENTION_V, shape.keys,
          [&](int64_t j) { return std::exp(of(scores, i, j) - top) / sum; });
      if (at[PIPEC_ATTENTION_TOPS])
        number(PIPEC_ATTENTION_TOPS, i) =
            static_cast<float>(top + std::log(sum));
      if (at[PIPEC_ATTENTION_SHARES])
        number(PIPEC_ATTENTION_SHARES, i) = 1;
    }
  }

  void gradient() {
    Matrix weights(scores), ofScores(scores);
    for (int64_t i = 0; i < shape.queries; ++i) {
      const double delta = product(PIPEC_ATTENTION_DY, i, PIPEC_ATTENTION_Y, i);
      for (int64_t j = 0; j < shape.keys; ++j) {
        double &weight = of(weights, i, j);
        weight = std::exp(of(scores, i, j) -
                          double(number(PIPEC_ATTENTION_TOPS, i)));
        of(ofScores, i, j) =
            shape.scale * weight *
            (product(PIPEC_ATTENTION_DY, i, PIPEC_ATTENTION_V, j) - delta);
      }
    }
    for (int64_t i = 0; i < shape.queries; ++i)
      mix(PIPEC_ATTENTION_DQ, i, PIPEC_ATTENTION_K, shape.keys,
          [&](int64_t j) { return of(ofScores, i, j); });
    for (int64_t j = 0; j < shape.keys; ++j) {
      mix(PIPEC_ATTENTION_DK, j, PIPEC_ATTENTION_Q, shape.queries,
          [&](int64_t i) { return of(ofScores, i, j); });
      mix(PIPEC_ATTENTION_DV, j, PIPEC_ATTENTION_DY, shape.queries,
          [&](int64_t i) { return of(weights, i, j); });
    }
  }

  const PipecAttention &shape;
  char *const *at;
  int64_t b = 0, h = 0;
  Matrix scores;
};

inline void attend(const PipecAttention &shape, char *const *at) {
  Attend(shape, at).run();
}

} // namespace pipec
