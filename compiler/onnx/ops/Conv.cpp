//===- Conv.cpp - importers of convolutions and pooling -------------------===//
#include "compiler/onnx/ops/Ops.h"
#include "compiler/onnx/ops/Window.h"

using namespace mlir;

namespace pipec::onnx {

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

Val convolve(NodeContext &c, const Val &x, const Val &w) {
  const int64_t groups = c.intAttr("group", 1);
  Emitter::requireSameElement(x, w);
  if (!x.isFloat() || w.getRank() != x.getRank() || groups < 1 ||
      x.dim(1) % groups != 0 || x.dim(1) / groups != w.dim(1) ||
      w.dim(0) % groups != 0)
    c.fail("its weight " + shapeText(w.getShape()) +
           " does not fit its input " + shapeText(x.getShape()) + " in " +
           std::to_string(groups) + " groups");
  Window window;
  window.kernel.assign(w.getShape().begin() + 2, w.getShape().end());
  checkKernelShape(c, window.kernel);
  readWindow(c, x, window);
  for (size_t i = 0; i < window.kernel.size(); ++i)
    if (extent(window, i) < 1 ||
        x.dim(static_cast<int64_t>(i) + 2) + window.low[i] + window.high[i] <
            extent(window, i))
      c.fail("its kernel is larger than the padded input " +
             shapeText(x.getShape()));
  return c.e.apply({x, w}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::ConvOp::create(b, v[0], v[1], window.strides, window.dilations,
                              window.low, window.high, groups)
        .getResult();
  });
}

void importConv(NodeContext &c) {
  const Val y = convolve(c, image(c), c.in(1));
  c.out(c.has(2) ? addChannelBias(c, y, c.in(2)) : y);
}

/// The gradient of a convolution with respect to its input. Output padding, and
/// pads that cut into the result, are done on the result.
void importConvTranspose(NodeContext &c) {
  const Val &x = image(c);
  const Val &w = c.in(1); // [channels, out / groups, kernel...]
  const int64_t groups = c.intAttr("group", 1);
  Emitter::requireSameElement(x, w);
  if (!x.isFloat() || w.getRank() != x.getRank() || groups < 1 ||
      w.dim(0) != x.dim(1) || w.dim(0) % groups != 0)
    c.fail("its weight " + shapeText(w.getShape()) +
           " does not fit its input " + shapeText(x.getShape()) + " in " +
           std::to_string(groups) + " groups");
  Window window;
  window.kernel.assign(w.getShape().begin() + 2, w.getShape().end());
  checkKernelShape(c, window.kernel);
  const size_t spatial = window.kernel.size();
  window.strides = spatialAttr(c, "strides", spatial, 1, 1);
  window.dilations = spatialAttr(c, "dilations", spatial, 1, 1);
  const SmallVector<int64_t> extra =
      spatialAttr(c, "output_padding", spatial, 0, 0);
  const std::string mode = c.stringAttr("auto_pad", "NOTSET");
  const auto wanted = c.intsAttr("output_shape");
  const SmallVector<int64_t> pads = spatialAttr(c, "pads", 2 * spatial, 0, 0);
  SmallVector<int64_t> full{x.dim(0), w.dim(1) * groups}, starts{0, 0},
      sizes{x.dim(0), w.dim(1) * groups}, grow{0, 0};
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t in = x.dim(static_cast<int64_t>(i) + 2);
    if (in < 1 || in > (int64_t(1) << 30))
      c.fail("its input has the shape " + shapeText(x.getShape()));
    const int64_t whole = (in - 1) * window.strides[i] + extent(window, i);
    int64_t low = pads[i], high = pads[spatial + i];
    int64_t size = whole + extra[i] - low - high;
    const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
    if (wanted || same) {
      if (wanted && wanted->size() < spatial)
        c.fail("its output_shape has too few entries");
      size = wanted ? (*wanted)[wanted->size() - spatial + i]
                    : in * window.strides[i];
      const int64_t total = std::max<int64_t>(0, whole + extra[i] - size);
      low = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    }
    if (size < 1 || low > whole)
      c.fail("its pads leave nothing of the result");
    // [low, low + size) of the whole result, which may end after it.
    full.push_back(whole);
    starts.push_back(low);
    sizes.push_back(std::min(size, whole - low));
    grow.push_back(size - sizes.back());
  }
  const SmallVector<int64_t> none(spatial, 0);
  Val y = c.e.apply({x, w}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::ConvGradInputOp::create(b, x.type.clone(full), v[0], v[1],
                                       window.strides, window.dilations, none,
                                       none, groups)
        .getResult();
  });
  y = c.e.slice(y, starts, sizes, SmallVector<int64_t>(y.getRank(), 1));
  const SmallVector<int64_t> zero(y.getRank(), 0);
  y = c.e.pad(y, zero, grow, zero, 0);
  c.out(c.has(2) ? addChannelBias(c, y, c.in(2)) : y);
}

/// A depthwise convolution over the past only; the last k - 1 elements are the
/// state of the next call.
void importCausalConvWithState(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.floatIn(0), &w = c.in(1);
  if (x.getRank() != 3 || w.getRank() != 3 || w.dim(0) != x.dim(1) ||
      w.dim(1) != 1)
    c.fail("its weight " + shapeText(w.getShape()) +
           " does not fit its input " + shapeText(x.getShape()));
  const int64_t before = w.dim(2) - 1, length = x.dim(2);
  const Val past = c.has(3)
                       ? c.in(3)
                       : e.splat(x.type.clone({x.dim(0), x.dim(1), before}), 0);
  const Val all = e.concat({past, x}, 2);
  if (all.dim(2) != before + length)
    c.fail("its past state does not have " + std::to_string(before) +
           " elements");
  const SmallVector<int64_t> one{1}, none{0};
  Val y = e.apply({all, w}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::ConvOp::create(b, v[0], v[1], one, one, none, none, x.dim(1))
        .getResult();
  });
  if (c.has(2))
    y = addChannelBias(c, y, c.in(2));
  const std::string activation = c.stringAttr("activation", "none");
  if (activation == "silu" || activation == "swish")
    y = e.mul(y, e.unary<nn::SigmoidOp>(y));
  else if (activation != "none")
    c.fail("its activation '" + activation + "' is unknown");
  c.out(0, y);
  c.out(1, e.sliceAxis(all, 2, length, before));
}

//===----------------------------------------------------------------------===//
// Pooling
//===----------------------------------------------------------------------===//

namespace {
/// A pooling window and the shape it gives. `high` is enlarged where ceil_mode
/// adds a place; `declaredHigh` is what the node says.
struct Pooling {
  Window window;
  SmallVector<int64_t> shape, declaredHigh;
  bool enlarged = false;
};
} // namespace

static Pooling readPooling(NodeContext &c, const Val &x) {
  Pooling p;
  const size_t spatial = static_cast<size_t>(x.getRank()) - 2;
  p.window.kernel = spatialAttr(c, "kernel_shape", spatial, 0, 1);
  if (p.window.kernel[0] == 0)
    c.fail("its attribute 'kernel_shape' is missing");
  readWindow(c, x, p.window);
  Window &w = p.window;
  p.declaredHigh = w.high;
  const bool ceil = c.intAttr("ceil_mode", 0) != 0;
  p.shape = {x.dim(0), x.dim(1)};
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t size = x.dim(static_cast<int64_t>(i) + 2);
    const int64_t room = size + w.low[i] + w.high[i] - extent(w, i);
    if (room < 0 && !(ceil && room > -w.strides[i]))
      c.fail("its window is larger than the padded input " +
             shapeText(x.getShape()));
    int64_t places = room < 0 ? 1 : room / w.strides[i] + 1;
    if (ceil && room > 0 && room % w.strides[i] != 0) {
      // One more place, unless its window would start in the padding.
      if (places * w.strides[i] < size + w.low[i])
        ++places;
    }
    const int64_t reach = (places - 1) * w.strides[i] + extent(w, i);
    if (reach > size + w.low[i] + w.high[i]) {
      w.high[i] = reach - size - w.low[i];
      p.enlarged = true;
    }
    p.shape.push_back(places);
  }
  return p;
}

void importMaxPool(NodeContext &c) {
  // nn pools f32 and f64; all other types of ONNX are exact in f32.
  const Type element = image(c).getElementType();
  const Type pooled =
      element.isF64() ? element : Type(Float32Type::get(c.e.getContext()));
  const Val x = c.e.cast(image(c), pooled);
  const Pooling p = readPooling(c, x);
  const Window &w = p.window;
  const auto pool = [&](unsigned result) {
    return c.e.apply({x}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
      const RankedTensorType type = x.type.clone(p.shape);
      return nn::MaxPoolOp::create(b, type, withElement(type, b.getI32Type()),
                                   v[0], w.kernel, w.strides, w.dilations,
                                   w.low, w.high)
          ->getResult(result);
    });
  };
  c.out(0, c.e.cast(pool(0), element));
  if (!c.wants(1))
    return;
  if (c.intAttr("storage_order", 0) != 0)
    c.fail("its indices are column-major (storage_order=1)");
  // ONNX counts indices over the whole tensor, nn over a plane.
  const Type i64 = c.e.i64();
  int64_t plane = 1;
  for (const int64_t size : x.getShape().drop_front(2))
    plane *= size;
  const RankedTensorType wide = RankedTensorType::get(p.shape, i64);
  const Val channels =
      c.e.add(c.e.mul(c.e.iota(wide, 0), static_cast<double>(x.dim(1))),
              c.e.iota(wide, 1));
  c.out(1, c.e.add(c.e.cast(pool(1), i64),
                   c.e.mul(channels, static_cast<double>(plane))));
}

/// Mean over windows by nn.avg_pool. `countPad`: padding counts as zeros.
static Val averagePool(NodeContext &c, const Val &x, const Pooling &p,
                       bool countPad) {
  const Window &w = p.window;
  return c.e.apply({x}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::AvgPoolOp::create(b, x.type.clone(p.shape), v[0], w.kernel,
                                 w.strides, w.dilations, w.low, w.high,
                                 countPad)
        .getResult();
  });
}

/// Where ceil_mode adds places, their windows count the declared padding but
/// not what lies beyond it: divides by how many elements count.
static Val countedShare(NodeContext &c, const Val &x, const Pooling &p) {
  Emitter &e = c.e;
  SmallVector<int64_t> one(x.getShape());
  one[0] = one[1] = 1;
  Pooling over = p;
  over.shape[0] = over.shape[1] = 1;
  SmallVector<int64_t> low{0, 0}, high{0, 0}, interior(x.getRank(), 0);
  for (size_t i = 0; i < p.window.low.size(); ++i) {
    low.push_back(p.window.low[i]);
    high.push_back(p.declaredHigh[i]);
    over.window.low[i] = 0;
    over.window.high[i] -= p.declaredHigh[i];
  }
  const Val ones = e.pad(e.splat(x.type.clone(one), 1), low, high, interior, 1);
  return averagePool(c, ones, over, /*countPad=*/true);
}

void importAveragePool(NodeContext &c) {
  const Val &x = image(c);
  if (!x.isFloat())
    c.fail("its input is not floating-point");
  const Pooling p = readPooling(c, x);
  const bool countPad = c.intAttr("count_include_pad", 0) != 0;
  Val y = averagePool(c, x, p, countPad);
  if (countPad && p.enlarged)
    y = c.e.div(y, countedShare(c, x, p));
  c.out(y);
}

/// (sum |x|^p)^(1/p) over windows
void importLpPool(NodeContext &c) {
  const Val &x = image(c);
  const Pooling p = readPooling(c, x);
  const auto order = static_cast<double>(c.intAttr("p", 2));
  Emitter &e = c.e;
  const Val powers = order == 2 ? e.mul(x, x)
                                : e.binary<nn::PowOp>(e.unary<nn::AbsOp>(x),
                                                      e.splatLike(x, order));
  int64_t taps = 1;
  for (const int64_t size : p.window.kernel)
    taps *= size;
  const Val sum = e.mul(averagePool(c, powers, p, /*countPad=*/true),
                        static_cast<double>(taps));
  c.out(order == 2 ? e.unary<nn::SqrtOp>(sum)
                   : e.binary<nn::PowOp>(sum, e.splatLike(sum, 1 / order)));
}

//===----------------------------------------------------------------------===//
// Over the whole plane
//===----------------------------------------------------------------------===//

static SmallVector<int64_t> spatialAxes(const Val &x) {
  return llvm::to_vector(llvm::seq<int64_t>(2, x.getRank()));
}

void importGlobalAveragePool(NodeContext &c) {
  c.out(c.e.mean(image(c), spatialAxes(c.in(0))));
}
void importGlobalMaxPool(NodeContext &c) {
  c.out(c.e.reduce("max", image(c), spatialAxes(c.in(0))));
}
void importGlobalLpPool(NodeContext &c) {
  const Val &x = image(c);
  Emitter &e = c.e;
  const auto order = static_cast<double>(c.intAttr("p", 2));
  const Val powers =
      e.binary<nn::PowOp>(e.unary<nn::AbsOp>(x), e.splatLike(x, order));
  const Val sum = e.reduce("sum", powers, spatialAxes(x));
  c.out(e.binary<nn::PowOp>(sum, e.splatLike(sum, 1 / order)));
}

} // namespace pipec::onnx
