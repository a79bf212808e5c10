//===- Expand.cpp - composed ops in terms of simpler ones -----------------===//
#include "compiler/target/fusion/Expand.h"
#include "dialects/nn/Build.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace pipec;

/// exp(x - max) times 1/sum: a division a row instead of one an element.
static Value expand(nn::NNBuilder &b, nn::SoftmaxOp op) {
  auto type = nn::tensorType(op.getX());
  int64_t last = type.getRank() - 1;
  auto spread = [&](Value row) {
    return nn::broadcast(b, row, type.getShape());
  };
  Value centred =
      nn::sub(b, op.getX(), spread(nn::reduce(b, "max", op.getX(), {last})));
  Value e = nn::exp(b, centred);
  Value sum = nn::reduce(b, "sum", e, {last});
  return nn::mul(b, e, spread(nn::ReciprocalOp::create(b, sum)));
}

/// Running sums by doubling: after step k each element is the sum of up to 2^k.
static Value expand(nn::NNBuilder &b, nn::CumsumOp op) {
  auto type = nn::tensorType(op.getX());
  int64_t axis = op.getAxis(), size = type.getDimSize(axis);
  SmallVector<int64_t> zeros(type.getRank(), 0), ones(type.getRank(), 1);
  auto flip = [&](Value x) -> Value {
    return op.getReverse() ? nn::ReverseOp::create(b, x, ArrayRef(axis)) : x;
  };
  // y[i] = x[i - by], zero where i < by.
  auto shifted = [&](Value x, int64_t by) -> Value {
    SmallVector<int64_t> low = zeros;
    low[axis] = by;
    Value padded = nn::PadOp::create(b, x, low, zeros, zeros, APFloat(0.0));
    return nn::slice(b, padded, zeros, type.getShape(), ones);
  };
  Value sum = flip(op.getX());
  if (op.getExclusive())
    sum = shifted(sum, 1);
  for (int64_t by = 1; by < size; by *= 2)
    sum = nn::add(b, sum, shifted(sum, by));
  return flip(sum);
}

namespace {
/// The place of a padded part along the one axis that is padded.
struct Part {
  Value x;
  int64_t axis, begin, end;
};
} // namespace

static std::optional<Part> partOf(nn::PadOp pad) {
  if (!pad.getValue().isZero() ||
      llvm::any_of(pad.getInterior(), [](int64_t n) { return n != 0; }))
    return std::nullopt;
  std::optional<Part> part;
  for (int64_t d = 0, n = pad.getLow().size(); d < n; ++d) {
    if (!pad.getLow()[d] && !pad.getHigh()[d])
      continue;
    if (part)
      return std::nullopt;
    int64_t begin = pad.getLow()[d];
    part = {pad.getX(), d, begin,
            begin + nn::tensorType(pad.getX()).getDimSize(d)};
  }
  return part;
}

/// What a cast to a type that holds all its numbers was made from.
static Value beforeWidening(Value value) {
  auto cast = value.getDefiningOp<nn::CastOp>();
  return cast && nn::isNarrow(cast.getX()) &&
                 isa<Float32Type, Float64Type>(
                     nn::tensorType(value).getElementType())
             ? cast.getX()
             : value;
}

/// Collects the padded parts that a tree of additions sums, as they were before
/// they were widened for the additions.
static bool collectParts(Value value, SmallVectorImpl<Part> &parts) {
  value = beforeWidening(value);
  if (auto pad = value.getDefiningOp<nn::PadOp>()) {
    auto part = partOf(pad);
    if (part)
      parts.push_back(*part);
    return part.has_value();
  }
  auto add = value.getDefiningOp<nn::AddOp>();
  return add && add->hasOneUse() && collectParts(add.getA(), parts) &&
         collectParts(add.getB(), parts);
}

/// pad(x) + pad(y) + … = concat(x, y, …) when each element comes from one part
/// only: the gradient of what was sliced into parts.
static Value joinParts(nn::NNBuilder &b, nn::AddOp op) {
  SmallVector<Part> parts;
  if (!collectParts(op.getA(), parts) || !collectParts(op.getB(), parts))
    return {};
  llvm::sort(parts,
             [](const Part &p, const Part &q) { return p.begin < q.begin; });
  int64_t axis = parts.front().axis, at = 0;
  SmallVector<Value> inputs;
  Type element = nn::tensorType(parts.front().x).getElementType();
  auto type = nn::tensorType(op.getY()).clone(element);
  auto fillTo = [&](int64_t end) {
    if (end == at)
      return;
    SmallVector<int64_t> shape(type.getShape());
    shape[axis] = end - at;
    inputs.push_back(nn::splat(b, type.clone(shape), 0));
  };
  for (const Part &part : parts) {
    if (part.axis != axis || part.begin < at ||
        nn::tensorType(part.x).getElementType() != element)
      return {};
    fillTo(part.begin);
    inputs.push_back(part.x);
    at = part.end;
  }
  fillTo(type.getDimSize(axis));
  return nn::ConcatOp::create(b, inputs, axis);
}

/// Those who round `wide`, which is `narrow` in another type, read that.
static void readNarrow(nn::NNBuilder &b, Value wide, Value narrow) {
  for (Operation *user : llvm::make_early_inc_range(wide.getUsers())) {
    if (isa<nn::CastOp>(user) &&
        nn::tensorType(user->getResult(0)) == nn::tensorType(narrow)) {
      user->getResult(0).replaceAllUsesWith(narrow);
    } else if (isa<nn::ReshapeOp, nn::TransposeOp>(user)) {
      b.setInsertionPoint(user);
      Operation *view = b.clone(*user);
      view->setOperand(0, narrow);
      Value result = view->getResult(0);
      result.setType(nn::tensorType(user->getResult(0))
                         .clone(nn::tensorType(narrow).getElementType()));
      readNarrow(b, user->getResult(0), result);
    }
  }
}

/// In the type that the parts had, for those who can read that.
static Value joinWidened(nn::NNBuilder &b, nn::AddOp op) {
  Value joined = joinParts(b, op);
  Type element = nn::tensorType(op.getY()).getElementType();
  if (!joined || nn::tensorType(joined).getElementType() == element)
    return joined;
  Value wide = nn::cast(b, joined, element);
  readNarrow(b, op.getY(), joined);
  return wide;
}

/// Whether a later part of the same tree of additions will be joined whole.
static bool isInnerSum(nn::AddOp op) {
  SmallVector<Part> parts;
  return op->hasOneUse() && isa<nn::AddOp>(*op->user_begin()) &&
         collectParts(op->user_begin()->getOperand(0), parts) &&
         collectParts(op->user_begin()->getOperand(1), parts);
}

void fusion::expandComposedOps(func::FuncOp func) {
  for (Operation &op : llvm::make_early_inc_range(func.getBody().front())) {
    nn::NNBuilder b(op.getLoc(), &op);
    Value simpler;
    if (auto softmax = dyn_cast<nn::SoftmaxOp>(op))
      simpler = expand(b, softmax);
    else if (auto cumsum = dyn_cast<nn::CumsumOp>(op))
      simpler = expand(b, cumsum);
    else if (auto add = dyn_cast<nn::AddOp>(op); add && !isInnerSum(add))
      simpler = joinWidened(b, add);
    if (!simpler)
      continue;
    op.getResult(0).replaceAllUsesWith(simpler);
    op.erase();
  }
  // What nobody needs any more.
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(func.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}
