//===- Build.h - short ways to write nn expressions -------------*- C++ -*-===//
//
// Gradients, the importer, losses and optimizers are written with these. Every
// function emits at most a few ops at the builder's place and location.
//
//===----------------------------------------------------------------------===//

#pragma once

#include "dialects/nn/NN.h"

namespace pipec::nn {

using NNBuilder = mlir::ImplicitLocOpBuilder;
using mlir::Value;

/// A constant of the type of `like` with every element `value`.
Value splatLike(NNBuilder &b, Value like, double value);
Value splat(NNBuilder &b, mlir::RankedTensorType type, double value);

Value add(NNBuilder &b, Value x, Value y);
Value sub(NNBuilder &b, Value x, Value y);
Value mul(NNBuilder &b, Value x, Value y);
Value div(NNBuilder &b, Value x, Value y);
Value neg(NNBuilder &b, Value x);
Value exp(NNBuilder &b, Value x);
Value log(NNBuilder &b, Value x);
Value mulScalar(NNBuilder &b, Value x, double s);
Value addScalar(NNBuilder &b, Value x, double s);
Value compare(NNBuilder &b, llvm::StringRef predicate, Value x, Value y);
Value select(NNBuilder &b, Value condition, Value x, Value y);
/// x where condition, else 0.
Value selectOrZero(NNBuilder &b, Value condition, Value x);
Value cast(NNBuilder &b, Value x, mlir::Type elementType);

Value reshape(NNBuilder &b, Value x, llvm::ArrayRef<int64_t> shape);
/// Same rank; dimensions of size 1 are repeated.
Value broadcast(NNBuilder &b, Value x, llvm::ArrayRef<int64_t> shape);
/// NumPy rules: leading dimensions of size 1 are added first.
Value broadcastTo(NNBuilder &b, Value x, llvm::ArrayRef<int64_t> shape);
Value transpose(NNBuilder &b, Value x, llvm::ArrayRef<int64_t> permutation);
Value slice(NNBuilder &b, Value x, llvm::ArrayRef<int64_t> starts,
            llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> strides);
/// Reduced dimensions stay, with size 1.
Value reduce(NNBuilder &b, llvm::StringRef kind, Value x,
             llvm::ArrayRef<int64_t> axes);
/// Sum over `axes` times 1/count, as PyTorch's mean.
Value mean(NNBuilder &b, Value x, llvm::ArrayRef<int64_t> axes);
Value matmul(NNBuilder &b, Value x, Value y, bool transposeX = false,
             bool transposeY = false);
Value iota(NNBuilder &b, mlir::RankedTensorType type, int64_t axis);

} // namespace pipec::nn
