//===- AttentionStash.h - what attention keeps, without copies -*- C++ -*-===//
#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace pipec::cuda {

/// Attention reads and writes rows wherever they lie. So what it keeps for its
/// gradient lies as its neighbours have it: queries, keys and values that are
/// slices of one tensor as that tensor, the result in the order of the product
/// behind it. Of all stages of a module, or of one that is a stage itself.
void settleAttention(mlir::ModuleOp module);

} // namespace pipec::cuda
