//===- Rough.h - functions that need few digits ----------------*- C++ -*-===//
//
// An exp, tanh or sigmoid of numbers that are no better than their narrow type,
// bf16 or f16, has this attribute: a device computes it in fewer instructions,
// with more digits than that type has. It is given before a program is cut into
// stages, so that a result is the same wherever it is computed.
//
//===----------------------------------------------------------------------===//
#pragma once

namespace pipec::nn {
inline constexpr char kRoughAttr[] = "nn.rough";
} // namespace pipec::nn
