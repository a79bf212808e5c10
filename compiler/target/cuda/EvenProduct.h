//===- EvenProduct.h - products over rows with gaps -------------*- C++ -*-===//
#pragma once

#include "compiler/target/fusion/Plan.h"
#include "runtime/kernels/cpu/Kernels.h"

namespace pipec::cuda {

/// A product whose rows have gaps behind them (dialects/nn/EvenRows.h), with
/// the gaps as a part of it: cuBLASLt's fast algorithms want sizes, too, that
/// fill whole 16 bytes. Further columns of the result lie in its gaps, where
/// nobody reads them; further terms of its sums are zero when the gaps of both
/// operands are.
struct EvenProduct {
  PipecMatmul shape;
  bool clearsGaps = false; ///< the gaps of both operands have to be zero

  /// `a`, `b` and `c`: the buffers of operands and result, which begin where
  /// the product's matrices do.
  EvenProduct(const PipecMatmul &shape, const fusion::Buffer &a,
              const fusion::Buffer &b, const fusion::Buffer &c);
};

} // namespace pipec::cuda
