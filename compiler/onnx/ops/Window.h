//===- Window.h - windows that slide over images ----------------*- C++ -*-===//
//
// What convolutions and pooling have in common: the attributes of a window, and
// images of shape [n, c, spatial...].
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/onnx/NodeContext.h"

namespace pipec::onnx {

/// strides, dilations and pads of a node, one entry a spatial dimension.
struct Window {
  llvm::SmallVector<int64_t> kernel, strides, dilations, low, high;
};

/// An attribute of one positive entry a spatial dimension.
llvm::SmallVector<int64_t> spatialAttr(NodeContext &c, const char *name,
                                       size_t spatial, int64_t otherwise,
                                       int64_t least);

/// Reads the window of a node over x. `kernel` must be filled in.
void readWindow(NodeContext &c, const Val &x, Window &w);

/// Elements from the first to the last tap along an axis.
int64_t extent(const Window &w, size_t i);

/// A tensor [n, c, spatial...].
const Val &image(NodeContext &c, size_t i = 0);

/// Adds a bias of one element a channel.
Val addChannelBias(NodeContext &c, const Val &y, const Val &bias);

/// Fails when the kernel is no kernel, or not what the attribute says.
void checkKernelShape(NodeContext &c, llvm::ArrayRef<int64_t> kernel);

/// The convolution of a node's attributes, checked, without a bias.
Val convolve(NodeContext &c, const Val &x, const Val &w);

} // namespace pipec::onnx
