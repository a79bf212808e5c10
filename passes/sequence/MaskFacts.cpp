//===- MaskFacts.cpp - what a mask does to later positions ----------------===//
#include "passes/sequence/MaskFacts.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pipec::nn;

namespace pipec::sequence {

MaskFacts::MaskFacts(func::FuncOp main, const Pieces &pieces)
    : pieces(pieces), sources(main), values(main) {
  for (Operation &op : main.front().without_terminator()) {
    if (op.getNumResults() != 1)
      continue;
    ArrayRef<int64_t> shape = tensorType(op.getResult(0)).getShape();
    const auto rank = static_cast<int64_t>(shape.size());
    for (int64_t q = 0; q < rank; ++q)
      for (int64_t k = 0; k < rank; ++k)
        if (q != k && shape[q] == pieces.length && shape[k] == pieces.length)
          if (Later fact = derive(&op, q, k); fact != Later::Unknown)
            facts[op.getResult(0)][{q, k}] = fact;
  }
}

Later MaskFacts::of(Value v, int64_t query, int64_t key) const {
  auto known = facts.find(v);
  if (known == facts.end())
    return Later::Unknown;
  auto fact = known->second.find({query, key});
  return fact == known->second.end() ? Later::Unknown : fact->second;
}

//===----------------------------------------------------------------------===//
// What follows from the operands
//===----------------------------------------------------------------------===//

/// The dimension of x that dimension `d` of y = reshape(x) is, or -1.
static int64_t sameDimension(ArrayRef<int64_t> y, int64_t d,
                             ArrayRef<int64_t> x) {
  int64_t before = 1, left = 1;
  for (int64_t size : y.take_front(d))
    before *= size;
  for (auto [e, size] : llvm::enumerate(x)) {
    if (left == before && size == y[d])
      return static_cast<int64_t>(e);
    left *= size;
  }
  return -1;
}

static Later logical(Operation *op, Later a, Later b) {
  const bool isAnd = isa<AndOp>(op);
  const Later wins = isAnd ? Later::False : Later::True;
  const Later loses = isAnd ? Later::True : Later::False;
  if (a == wins || b == wins)
    return wins;
  return a == loses && b == loses ? loses : Later::Unknown;
}

static Later castFact(CastOp op, Later a) {
  const bool toBool = tensorType(op.getY()).getElementType().isInteger(1);
  if (a == Later::Zero || a == Later::False)
    return toBool ? Later::False : Later::Zero;
  if (a == Later::True)
    return toBool ? Later::True : Later::Unknown;
  return isFloat(op.getY()) ? a : Later::Unknown;
}

Later MaskFacts::elementwise(Operation *op, int64_t query, int64_t key) {
  auto at = [&](unsigned i) { return of(op->getOperand(i), query, key); };
  auto either = [&](Later what) {
    return at(0) == what || at(1) == what ? what : Later::Unknown;
  };
  auto first = [&](Later from, Later to) {
    return at(0) == from ? to : Later::Unknown;
  };
  return llvm::TypeSwitch<Operation *, Later>(op)
      .Case([&](StopGradientOp) { return at(0); })
      .Case([&](CastOp cast) { return castFact(cast, at(0)); })
      .Case([&](ExpOp) { return first(Later::Low, Later::Zero); })
      .Case([&](IsNanOp) { return first(Later::Zero, Later::False); })
      .Case([&](NotOp) {
        return at(0) == Later::False  ? Later::True
               : at(0) == Later::True ? Later::False
                                      : Later::Unknown;
      })
      .Case<AndOp, OrOp>([&](Operation *) { return logical(op, at(0), at(1)); })
      .Case([&](AddOp) {
        return at(0) == Later::Zero && at(1) == Later::Zero
                   ? Later::Zero
                   : either(Later::Low);
      })
      .Case([&](SubOp) { return first(Later::Low, Later::Low); })
      .Case([&](MulOp) { return either(Later::Zero); })
      .Case([&](DivOp) { return first(Later::Zero, Later::Zero); })
      .Case([&](MinOp) { return either(Later::Low); })
      .Case([&](SelectOp) {
        return at(0) == Later::True    ? at(1)
               : at(0) == Later::False ? at(2)
               : at(1) == at(2)        ? at(1)
                                       : Later::Unknown;
      })
      .Default([](Operation *) { return Later::Unknown; });
}

Later MaskFacts::derive(Operation *op, int64_t query, int64_t key) {
  Later fact = Later::Unknown;
  ArrayRef<int64_t> y = tensorType(op->getResult(0)).getShape();
  auto shape = [&] { return tensorType(op->getOperand(0)).getShape(); };
  if (op->hasTrait<nn::Elementwise>()) {
    fact = elementwise(op, query, key);
  } else if (isa<BroadcastOp>(op)) {
    if (shape()[query] == y[query] && shape()[key] == y[key])
      fact = of(op->getOperand(0), query, key);
  } else if (isa<ReshapeOp>(op)) {
    fact = of(op->getOperand(0), sameDimension(y, query, shape()),
              sameDimension(y, key, shape()));
  } else if (auto transpose = dyn_cast<TransposeOp>(op)) {
    fact = of(op->getOperand(0), transpose.getPermutation()[query],
              transpose.getPermutation()[key]);
  } else if (auto slice = dyn_cast<SliceOp>(op)) {
    auto whole = [&](int64_t d) {
      return shape()[d] == y[d] && slice.getStrides()[d] == 1;
    };
    if (whole(query) && whole(key))
      fact = of(op->getOperand(0), query, key);
  } else if (isa<SoftmaxOp>(op)) {
    if (key + 1 == static_cast<int64_t>(y.size()) &&
        of(op->getOperand(0), query, key) == Later::Low)
      fact = Later::Zero;
  }
  if (fact == Later::Unknown && sources.contains(op))
    fact = valuesOf(op, query, key);
  return fact;
}

//===----------------------------------------------------------------------===//
// What the values say
//===----------------------------------------------------------------------===//

Later MaskFacts::valuesOf(Operation *op, int64_t query, int64_t key) {
  const Literal &literal = values.of(op);
  // Every layer has the same mask.
  auto [it, isNew] = read.insert({{&literal, {query, key}}, Later::Unknown});
  if (isNew)
    it->second = check(literal, query, key);
  return it->second;
}

Later MaskFacts::check(const Literal &literal, int64_t query,
                       int64_t key) const {
  if (!literal)
    return Later::Unknown;
  // Where the elements of one query and key are, and those of all others.
  SmallVector<int64_t> others(literal.compressed().getShape());
  const bool moves[] = {others[query] > 1, others[key] > 1};
  others[query] = others[key] = 1;
  const Literal *whole[] = {&literal};
  SmallVector<int64_t> bases;
  forEachPosition(others, whole,
                  [&](ArrayRef<int64_t> at) { bases.push_back(at[0]); });
  const int64_t stepQuery = moves[0] ? literal.getStrides()[query] : 0;
  const int64_t stepKey = moves[1] ? literal.getStrides()[key] : 0;
  const bool isFloat = literal.isFloat();
  bool low = true, zero = true, set = true, any = false;
  for (int64_t base : bases)
    for (int64_t q = 0; q < pieces.length; ++q)
      for (int64_t k = pieces.end(pieces.pieceAt(q)); k < pieces.length; ++k) {
        const int64_t at = base + q * stepQuery + k * stepKey;
        const double x = isFloat ? literal.doubleAt(at)
                                 : static_cast<double>(literal.intAt(at));
        low = low && x <= kLow;
        zero = zero && x == 0;
        set = set && x != 0;
        any = true;
      }
  if (!any)
    return Later::Unknown;
  if (literal.getElementType().isInteger(1))
    return zero ? Later::False : set ? Later::True : Later::Unknown;
  return zero ? Later::Zero : low && isFloat ? Later::Low : Later::Unknown;
}

} // namespace pipec::sequence
