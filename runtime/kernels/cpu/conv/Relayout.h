//===- Relayout.h - plain <-> blocked activations ---------------*- C++ -*-===//
#pragma once

#include "runtime/kernels/cpu/conv/ConvShape.h"

namespace pipec::cpu {

/// Copies `images` images of layout `l` (blocked) to plain layout.
template <typename T>
void toPlain(const Layout &l, int64_t images, const T *blocked, T *plain);
/// The other way; lanes without a channel become zero.
template <typename T>
void toBlocked(const Layout &l, int64_t images, const T *plain, T *blocked);

} // namespace pipec::cpu
