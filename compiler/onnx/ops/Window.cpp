//===- Window.cpp - windows that slide over images ------------------------===//
#include "compiler/onnx/ops/Window.h"

using namespace mlir;

namespace pipec::onnx {

/// Kernels, strides, dilations and pads beyond this are an attack on
/// arithmetic.
static constexpr int64_t kLargestWindow = int64_t(1) << 20;

SmallVector<int64_t> spatialAttr(NodeContext &c, const char *name,
                                 size_t spatial, int64_t otherwise,
                                 int64_t least) {
  const auto given = c.intsAttr(name);
  if (!given || given->empty())
    return SmallVector<int64_t>(spatial, otherwise);
  if (given->size() != spatial)
    c.fail(std::string("its attribute '") + name + "' has " +
           std::to_string(given->size()) + " entries for " +
           std::to_string(spatial) + " spatial dimensions");
  for (const int64_t v : *given)
    if (v < least || v > kLargestWindow)
      c.fail(std::string("its attribute '") + name + "' has the entry " +
             std::to_string(v));
  return SmallVector<int64_t>(given->begin(), given->end());
}

void readWindow(NodeContext &c, const Val &x, Window &w) {
  const size_t spatial = w.kernel.size();
  w.strides = spatialAttr(c, "strides", spatial, 1, 1);
  w.dilations = spatialAttr(c, "dilations", spatial, 1, 1);
  w.low.assign(spatial, 0);
  w.high.assign(spatial, 0);
  const std::string mode = c.stringAttr("auto_pad", "NOTSET");
  if (mode == "NOTSET") {
    const auto pads = c.intsAttr("pads").value_or(std::vector<int64_t>());
    if (!pads.empty() && pads.size() != 2 * spatial)
      c.fail("its attribute 'pads' has " + std::to_string(pads.size()) +
             " entries for " + std::to_string(spatial) + " spatial dimensions");
    for (size_t i = 0; i < pads.size(); ++i) {
      if (pads[i] < 0 || pads[i] > kLargestWindow)
        c.fail("its attribute 'pads' has the entry " + std::to_string(pads[i]));
      (i < spatial ? w.low[i] : w.high[i - spatial]) = pads[i];
    }
    return;
  }
  if (mode == "VALID")
    return;
  if (mode != "SAME_UPPER" && mode != "SAME_LOWER")
    c.fail("its auto_pad '" + mode + "' is unknown");
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t size = x.dim(static_cast<int64_t>(i) + 2);
    const int64_t places = (size + w.strides[i] - 1) / w.strides[i];
    const int64_t total =
        std::max<int64_t>(0, (places - 1) * w.strides[i] +
                                 (w.kernel[i] - 1) * w.dilations[i] + 1 - size);
    w.low[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.high[i] = total - w.low[i];
  }
}

int64_t extent(const Window &w, size_t i) {
  return (w.kernel[i] - 1) * w.dilations[i] + 1;
}

const Val &image(NodeContext &c, size_t i) {
  const Val &x = c.in(i);
  if (x.getRank() < 3)
    c.fail("its input of shape " + shapeText(x.getShape()) +
           " has no spatial dimension");
  return x;
}

Val addChannelBias(NodeContext &c, const Val &y, const Val &bias) {
  if (bias.getShape() != ArrayRef<int64_t>({y.dim(1)}))
    c.fail("its bias has the shape " + shapeText(bias.getShape()) + " for " +
               std::to_string(y.dim(1)) + " channels",
           "the file is malformed; export the model again");
  SmallVector<int64_t> shape(y.getRank(), 1);
  shape[1] = y.dim(1);
  return c.e.add(y, c.e.reshape(bias, shape));
}

void checkKernelShape(NodeContext &c, ArrayRef<int64_t> kernel) {
  for (const int64_t size : kernel)
    if (size < 1 || size > kLargestWindow)
      c.fail("its kernel has the shape " + shapeText(kernel));
  const auto given = c.intsAttr("kernel_shape");
  if (given && !given->empty() && ArrayRef(*given) != kernel)
    c.fail("its kernel_shape " + shapeText(*given) +
           " is not that of its weight, " + shapeText(kernel));
}

} // namespace pipec::onnx
