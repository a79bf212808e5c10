//===- FuseAttention.cpp - attention as one op ----------------------------===//
#include "dialects/nn/Build.h"
#include "passes/AttentionMask.h"
#include "passes/Passes.h"

#include <limits>

namespace pipec {
#define GEN_PASS_DEF_FUSEATTENTION
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

namespace {

/// x of x * s and x / s, s multiplied into `scale`; null for other values.
Value withoutScale(Value value, double &scale) {
  if (auto product = value.getDefiningOp<MulOp>()) {
    for (bool second : {false, true})
      if (auto s = splatOf(product->getOperand(!second))) {
        scale *= *s;
        return product->getOperand(second);
      }
  } else if (auto quotient = value.getDefiningOp<DivOp>()) {
    if (auto s = splatOf(quotient.getB()); s && *s != 0) {
      scale /= *s;
      return quotient.getA();
    }
  }
  return {};
}

/// One softmax and what belongs to it.
struct Found {
  MatmulOp scores, result;
  Value q, k, v;
  double scale = 1;
  bool zeroRows = false;
  Value blocked; ///< where a mask hides a whole row, whose result is 0
  SmallVector<MaskStep> steps; ///< the outermost first
  AttentionMask::Settled masks;
  SmallVector<int64_t> shape; ///< of the scores, as the masks see them
};

class Fuser {
public:
  Fuser(func::FuncOp main, int64_t mostHeadSize)
      : main(main), mostHeadSize(mostHeadSize), mask(main) {}

  void run() {
    std::vector<Found> all;
    for (auto softmax : main.front().getOps<SoftmaxOp>())
      if (auto found = match(softmax))
        all.push_back(std::move(*found));
    for (Found &found : all)
      rewrite(found);
    for (Operation &op :
         llvm::make_early_inc_range(llvm::reverse(main.front())))
      if (isOpTriviallyDead(&op))
        op.erase();
  }

private:
  //===--------------------------------------------------------------------===//
  // Finding
  //===--------------------------------------------------------------------===//

  std::optional<Found> match(SoftmaxOp softmax) {
    Found found;
    if (!tensorType(softmax.getY()).getElementType().isF32() ||
        !matchResult(softmax, found))
      return std::nullopt;
    Value scores = softmax.getX();
    if (found.blocked)
      scores = masked(scores, found.blocked);
    if (!scores || !matchScores(scores, found) ||
        (found.blocked && found.steps.size() != 1))
      return std::nullopt;
    const int64_t size = tensorType(found.q)
                             .getShape()
                             .end()[found.scores.getTransposeA() ? -2 : -1];
    ArrayRef<int64_t> y = tensorType(found.result.getY()).getShape();
    if (size > mostHeadSize || size != y.back() || size == 0 ||
        llvm::is_contained(found.shape, 0))
      return std::nullopt;
    auto masks = mask.settle(found.steps);
    if (!masks)
      return std::nullopt;
    found.masks = std::move(*masks);
    return found;
  }

  /// `scores` without what is put in the place of rows that their mask hides:
  /// a sum of which `blocked` says where the mask's rows are -inf throughout.
  static Value masked(Value scores, Value blocked) {
    auto select = scores.getDefiningOp<SelectOp>();
    if (!select || select.getCondition() != blocked ||
        splatOf(select.getA()) != 0.0)
      return {};
    auto once = [](Value x) {
      auto repeated = x.getDefiningOp<BroadcastOp>();
      return repeated ? repeated.getX() : x;
    };
    auto equal = once(blocked).getDefiningOp<CompareOp>();
    auto best = equal && equal.getPredicate() == "eq"
                    ? equal.getA().getDefiningOp<ReduceOp>()
                    : ReduceOp();
    auto sum = select.getB().getDefiningOp<AddOp>();
    if (!best || !sum || best.getKind() != "max" ||
        splatOf(equal.getB()) != -std::numeric_limits<double>::infinity() ||
        best.getAxes() != ArrayRef(tensorType(best.getX()).getRank() - 1))
      return {};
    if (once(sum.getA()) != best.getX() && once(sum.getB()) != best.getX())
      return {};
    return sum.getY();
  }

  /// The probabilities go into one product, perhaps without NaN.
  static bool matchResult(SoftmaxOp softmax, Found &found) {
    Value weights = softmax.getY();
    for (Operation *user : weights.getUsers())
      if (auto isNan = dyn_cast<IsNanOp>(user)) {
        auto select = isNan->hasOneUse()
                          ? dyn_cast<SelectOp>(*isNan->user_begin())
                          : SelectOp();
        if (!select || select.getCondition() != isNan.getY() ||
            splatOf(select.getA()) != 0.0 || select.getB() != weights ||
            !llvm::all_of(weights.getUsers(), [&](Operation *op) {
              return op == isNan || op == select;
            }))
          return false;
        found.zeroRows = true;
        weights = select.getResult();
        break;
      }
    // Or with zeros where rows are hidden.
    if (auto select = weights.hasOneUse()
                          ? dyn_cast<SelectOp>(*weights.user_begin())
                          : SelectOp();
        select && !found.zeroRows && select.getB() == weights &&
        splatOf(select.getA()) == 0.0) {
      found.zeroRows = true;
      found.blocked = select.getCondition();
      weights = select.getResult();
    }
    // Heads apart or side by side, the rows stay what they are.
    while (weights.hasOneUse()) {
      auto reshape = dyn_cast<ReshapeOp>(*weights.user_begin());
      if (!reshape || !keepsRows(reshape))
        break;
      weights = reshape.getY();
    }
    if (!weights.hasOneUse())
      return false;
    found.result = dyn_cast<MatmulOp>(*weights.user_begin());
    if (!found.result || found.result.getA() != weights ||
        found.result.getTransposeA() || found.result.getB() == weights)
      return false;
    found.v = found.result.getB();
    return true;
  }

  static bool keepsRows(ReshapeOp reshape) {
    ArrayRef<int64_t> x = tensorType(reshape.getX()).getShape(),
                      y = tensorType(reshape.getY()).getShape();
    return x.size() >= 2 && y.size() >= 2 && x.take_back(2) == y.take_back(2);
  }

  /// From the softmax back to q k'.
  bool matchScores(Value scores, Found &found) {
    Operation *op = scores.getDefiningOp();
    if (auto product = dyn_cast_or_null<MatmulOp>(op))
      return matchProduct(product, found);
    if (auto reshape = dyn_cast_or_null<ReshapeOp>(op))
      return keepsRows(reshape) && matchScores(reshape.getX(), found);
    if (Value x = withoutScale(scores, found.scale))
      return matchScores(x, found);
    if (auto select = dyn_cast_or_null<SelectOp>(op))
      return matchSelection(select, found);
    // One side leads to the product, the other is a mask.
    if (isa_and_nonnull<AddOp, SubOp>(op))
      for (unsigned side : {1u, 0u}) {
        Found with = found;
        if ((side == 0 && isa<SubOp>(op)) || trains(op->getOperand(side)))
          continue;
        if (auto step = mask.added(op->getOperand(side),
                                   isa<SubOp>(op) ? -found.scale : found.scale))
          with.steps.push_back(std::move(*step));
        if (!matchScores(op->getOperand(1 - side), with))
          continue;
        found = std::move(with);
        return true;
      }
    return false;
  }

  /// A condition keeps scores or replaces them by a low number.
  bool matchSelection(SelectOp select, Found &found) {
    for (bool second : {true, false}) {
      auto low = splatOf(second ? select.getB() : select.getA());
      if (!low)
        continue;
      auto step = mask.selected(select.getCondition(),
                                tensorType(select.getResult()).getShape(), *low,
                                second, found.scale);
      if (!step)
        continue;
      found.steps.push_back(std::move(*step));
      return matchScores(second ? select.getA() : select.getB(), found);
    }
    return false;
  }

  static bool matchProduct(MatmulOp product, Found &found) {
    auto unscaled = [&](Value x) {
      Value less = withoutScale(x, found.scale);
      return less ? less : x;
    };
    found.scores = product;
    found.q = unscaled(product.getA());
    found.k = unscaled(product.getB());
    ArrayRef<int64_t> own = tensorType(product.getY()).getShape();
    found.shape = found.steps.empty() ? SmallVector<int64_t>(own)
                                      : found.steps.front().full;
    ArrayRef<int64_t> rows = ArrayRef(found.shape).take_back(2);
    return rows == own.take_back(2) &&
           llvm::all_of(found.steps, [&](const MaskStep &step) {
             return step.full == found.shape;
           });
  }

  /// Whether a trained weight has a part in the value.
  bool trains(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return false;
    if (auto it = trained.find(op); it != trained.end())
      return it->second;
    bool result;
    if (auto weight = dyn_cast<WeightOp>(op))
      result = SymbolTable::lookupNearestSymbolFrom<ParameterOp>(
                   op, weight.getParameterAttr())
                   .isTrained();
    else
      result =
          !isa<StopGradientOp>(op) && isFloat(value) &&
          llvm::any_of(op->getOperands(), [&](Value x) { return trains(x); });
    return trained[op] = result;
  }

  //===--------------------------------------------------------------------===//
  // Rewriting
  //===--------------------------------------------------------------------===//

  static Value swapped(NNBuilder &b, Value x) {
    auto permutation =
        llvm::to_vector(llvm::seq<int64_t>(0, tensorType(x).getRank()));
    std::swap(permutation.end()[-1], permutation.end()[-2]);
    return nn::transpose(b, x, permutation);
  }

  static bool isSwap(TransposeOp op) {
    auto wanted =
        llvm::to_vector(llvm::seq<int64_t>(0, tensorType(op.getY()).getRank()));
    std::swap(wanted.end()[-1], wanted.end()[-2]);
    return op.getPermutation() == ArrayRef(wanted);
  }

  /// Keys or values [batch, heads, s, d] that groups of heads share, as
  /// [batch, groups, heads of a group, s, d]: repeated by a view, where `x`
  /// repeats them in memory. Null when they are not shared.
  static Value shared(NNBuilder &b, Value x) {
    bool turned = false;
    while (auto swap = x.getDefiningOp<TransposeOp>()) {
      if (!isSwap(swap))
        return {};
      turned = !turned;
      x = swap.getX();
    }
    auto joined = x.getDefiningOp<ReshapeOp>();
    auto repeated =
        joined ? joined.getX().getDefiningOp<BroadcastOp>() : BroadcastOp();
    if (!repeated)
      return {};
    ArrayRef<int64_t> once = tensorType(repeated.getX()).getShape(),
                      many = tensorType(repeated.getY()).getShape(),
                      heads = tensorType(x).getShape();
    if (many.size() != 5 || heads.size() != 4 || once[2] != 1 || many[2] == 1 ||
        many[0] != heads[0] || many.take_back(2) != heads.take_back(2))
      return {};
    for (size_t d : {0, 1, 3, 4})
      if (once[d] != many[d])
        return {};
    return turned ? swapped(b, repeated.getY()) : repeated.getY();
  }

  void rewrite(Found &found) {
    NNBuilder b(found.result.getLoc(), found.result);
    // The masks' view of the heads.
    auto shaped = [&](Value x, ArrayRef<int64_t> outer) {
      SmallVector<int64_t> shape(outer);
      llvm::append_range(shape, tensorType(x).getShape().take_back(2));
      return nn::reshape(b, x, shape);
    };
    auto turned = [&](Value x, bool turns) {
      return turns ? swapped(b, x) : x;
    };
    Value q = turned(found.q, found.scores.getTransposeA());
    Value k = turned(found.k, !found.scores.getTransposeB());
    Value v = turned(found.v, found.result.getTransposeB());
    Value bias = AttentionMask::bias(b, found.masks, found.shape);
    Value sharedK = shared(b, k), sharedV = shared(b, v);
    SmallVector<int64_t> outer(ArrayRef(found.shape).drop_back(2));
    if (sharedK && sharedV && sharedK.getType() == sharedV.getType()) {
      k = sharedK;
      v = sharedV;
      outer.assign(tensorType(k).getShape().drop_back(2));
      if (bias)
        bias = shaped(bias, outer);
    }
    auto unit = [&](bool on) { return on ? b.getUnitAttr() : UnitAttr(); };
    auto attention = AttentionOp::create(
        b, shaped(q, outer), shaped(k, outer), shaped(v, outer), bias,
        b.getF64FloatAttr(found.scale), unit(found.masks.causal),
        unit(found.zeroRows), unit(found.masks.replaces));
    found.result.getY().replaceAllUsesWith(nn::reshape(
        b, attention.getY(), tensorType(found.result.getY()).getShape()));
  }

  func::FuncOp main;
  int64_t mostHeadSize;
  AttentionMask mask;
  llvm::DenseMap<Operation *, bool> trained;
};

struct FuseAttentionPass
    : public pipec::impl::FuseAttentionBase<FuseAttentionPass> {
  using FuseAttentionBase::FuseAttentionBase;
  void runOnOperation() override {
    func::FuncOp main = mainFunction(getOperation());
    if (!main)
      return signalPassFailure();
    Fuser(main, mostHeadSize).run();
  }
};

} // namespace
