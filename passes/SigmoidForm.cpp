//===- SigmoidForm.cpp - 1 + tanh(u) as a sigmoid -------------------------===//
#include "passes/SigmoidForm.h"
#include "dialects/nn/Build.h"
#include "dialects/nn/Rough.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

/// The number that a constant of floats, also behind views, has everywhere.
static std::optional<double> splatOf(Value v) {
  Operation *op = v.getDefiningOp();
  while (isa_and_nonnull<BroadcastOp, ReshapeOp>(op))
    op = op->getOperand(0).getDefiningOp();
  auto constant = dyn_cast_or_null<ConstantOp>(op);
  auto numbers =
      constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : nullptr;
  if (!numbers || !isa<FloatType>(numbers.getElementType()))
    return {};
  return numbers.getSplatValue<APFloat>().convertToDouble();
}

/// The other operand of a sum or product whose one operand is `number`.
template <typename Op> static Value beside(Operation *op, double number) {
  auto both = dyn_cast_or_null<Op>(op);
  for (unsigned i : {0, 1})
    if (both && splatOf(both->getOperand(i)) == number)
      return both->getOperand(1 - i);
  return {};
}

static Operation *onlyUser(Value v) {
  return v.hasOneUse() ? *v.getUsers().begin() : nullptr;
}

/// 2u, which is exact; as one product where u is one with a number.
static Value twice(NNBuilder &b, Value u) {
  if (auto product = u.getDefiningOp<MulOp>(); product && u.hasOneUse())
    for (unsigned i : {0, 1})
      if (auto number = splatOf(product->getOperand(i)))
        return mulScalar(b, product->getOperand(1 - i), 2 * *number);
  return nn::add(b, u, u);
}

/// Puts in place of `sum`, which is 2s, or of the products in which that is
/// halved, what has s.
static void replace(NNBuilder &b, AddOp sum, Value s) {
  auto product = dyn_cast_or_null<MulOp>(onlyUser(sum.getY()));
  if (!product)
    return sum.getY().replaceAllUsesWith(nn::add(b, s, s));
  Value other = product.getA() == sum.getY() ? product.getB() : product.getA();
  b.setInsertionPoint(product);
  b.setLoc(product.getLoc());
  if (splatOf(other) == 0.5)
    return product.getY().replaceAllUsesWith(s);
  if (Value y = beside<MulOp>(other.getDefiningOp(), 0.5))
    return product.getY().replaceAllUsesWith(mul(b, y, s));
  auto outer = dyn_cast_or_null<MulOp>(onlyUser(product.getY()));
  if (outer && beside<MulOp>(outer, 0.5) == product.getY()) {
    b.setInsertionPoint(outer);
    return outer.getY().replaceAllUsesWith(mul(b, other, s));
  }
  b.setInsertionPoint(sum);
  sum.getY().replaceAllUsesWith(nn::add(b, s, s));
}

void pipec::useSigmoidForm(func::FuncOp main) {
  for (auto tanh : llvm::make_early_inc_range(main.front().getOps<TanhOp>())) {
    auto sum = dyn_cast_or_null<AddOp>(onlyUser(tanh.getY()));
    if (!tanh->hasAttr(kRoughAttr) || beside<AddOp>(sum, 1) != tanh.getY())
      continue;
    NNBuilder b(tanh.getLoc(), tanh);
    auto sigmoid = SigmoidOp::create(b, twice(b, tanh.getX()));
    sigmoid->setAttr(kRoughAttr, b.getUnitAttr());
    b.setInsertionPoint(sum);
    replace(b, sum, sigmoid);
  }
}
