//===- AttentionCall.h - attention that a library may compute --*- C++ -*-===//
#pragma once

#include "compiler/target/fusion/Plan.h"
#include "runtime/StageAbi.h"

#include <array>
#include <optional>

namespace pipec::cuda {

/// A call of PipecDevice::attention.
struct AttentionCall {
  PipecAttention shape = {};
  /// Of each argument; no buffer where it is left out.
  std::array<fusion::Placement, PIPEC_ATTENTION_ARGUMENTS> places;

  /// Where the rows' numbers are, in a form that other tasks know as well;
  /// nothing where they are this task's own.
  std::optional<std::pair<int, int64_t>>
  topsInRegion(llvm::ArrayRef<fusion::Buffer> buffers) const;
};

/// The call for a unit of nn.attention, or of its gradient of keys that has
/// that of queries beside it (Unit::attention); nothing where cuDNN has none:
/// for other types than bf16, with a bias, of heads that are not a multiple of
/// 8 or more than 128, and where rows do not begin at whole 16 bytes.
std::optional<AttentionCall> attentionCall(const fusion::TaskPlan &plan,
                                           const fusion::Unit &unit);

} // namespace pipec::cuda
