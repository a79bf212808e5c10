//===- Source.cpp - importers of constants and ranges ---------------------===//
#include "compiler/onnx/ops/Ops.h"

#include <cmath>

using namespace mlir;

namespace pipec::onnx {

void importConstant(NodeContext &c) {
  MLIRContext *context = c.e.getContext();
  if (const Attribute *a = c.attribute("value"); a && a->tensor) {
    const TensorData &t = *a->tensor;
    if (!t.problem.empty() || !elementType(context, t.type))
      c.fail("its value cannot be used: " +
             (t.problem.empty() ? "elements of type " + typeName(t.type)
                                : t.problem));
    c.out(c.e.modelTensor(t));
    return;
  }
  const Type f32 = Float32Type::get(context);
  if (c.attribute("value_float")) {
    c.out(c.e.scalar(f32, c.floatAttr("value_float", 0)));
  } else if (const auto floats = c.floatsAttr("value_floats")) {
    const auto type =
        RankedTensorType::get({static_cast<int64_t>(floats->size())}, f32);
    c.out(
        nn::Literal(type, std::vector<double>(floats->begin(), floats->end())));
  } else if (c.attribute("value_int")) {
    c.out(nn::Literal::scalarInt(context, c.intAttr("value_int")));
  } else if (const auto ints = c.intsAttr("value_ints")) {
    c.out(c.e.ints(*ints));
  } else {
    c.fail("its value is a string or sparse, or missing");
  }
}

void importConstantOfShape(NodeContext &c) {
  MLIRContext *context = c.e.getContext();
  const std::vector<int64_t> shape = c.ints(0, "shape");
  Val value = c.e.scalar(Float32Type::get(context), 0);
  if (const Attribute *a = c.attribute("value"); a && a->tensor) {
    if (!a->tensor->problem.empty() || !elementType(context, a->tensor->type) ||
        a->tensor->elements() != 1)
      c.fail("its value is not one number");
    value = c.e.modelTensor(*a->tensor);
  }
  c.out(c.e.broadcast(c.e.reshape(value, {}), shape));
}

constexpr int kMostInRange = 1 << 26;

[[noreturn]] void failRange(NodeContext &c, double from, double to,
                            double step) {
  char text[160];
  std::snprintf(text, sizeof text,
                "from %g to %g in steps of %g is no range of at most %d "
                "numbers",
                from, to, step, kMostInRange);
  c.fail(text, "where a dimension is one of its bounds, give a smaller --dim");
}

void importRange(NodeContext &c) {
  const Type element = c.in(0).getElementType();
  const nn::Literal start = c.known(0, "start"), limit = c.known(1, "limit"),
                    delta = c.known(2, "delta");
  if (start.getNumElements() != 1 || limit.getNumElements() != 1 ||
      delta.getNumElements() != 1)
    c.fail("its bounds are not scalars");
  const double from = start.doubles()[0], to = limit.doubles()[0],
               step = delta.doubles()[0];
  const double steps = std::ceil((to - from) / step);
  if (step == 0 || !std::isfinite(steps) || steps > kMostInRange)
    failRange(c, from, to, step);
  const auto count = static_cast<int64_t>(std::max(0.0, steps));
  const auto type = RankedTensorType::get({count}, element);
  if (nn::holdsFloats(element)) {
    std::vector<double> values(count);
    for (int64_t i = 0; i < count; ++i)
      values[i] = nn::roundTo(element, from + static_cast<double>(i) * step);
    c.out(nn::Literal(type, std::move(values)));
    return;
  }
  std::vector<int64_t> values(count);
  int64_t at = start.integers()[0];
  for (int64_t &v : values) {
    v = nn::wrapTo(element, at);
    at = static_cast<int64_t>(static_cast<uint64_t>(at) +
                              static_cast<uint64_t>(delta.integers()[0]));
  }
  c.out(nn::Literal(type, std::move(values)));
}

void importEyeLike(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.in(0);
  if (x.getRank() != 2)
    c.fail("its input is no matrix");
  const Type element = c.attribute("dtype")
                           ? c.typeAttr("dtype", ElementType::Float)
                           : x.getElementType();
  const RankedTensorType type = RankedTensorType::get(x.getShape(), e.i64());
  const Val distance = e.sub(e.iota(type, 1), e.iota(type, 0));
  const Val on = e.compare("eq", distance,
                           e.splatLike(distance, double(c.intAttr("k", 0))));
  c.out(e.cast(on, element));
}

} // namespace pipec::onnx
