//===- FuseAttention.cpp - attention as one op ----------------------------===//
#include "dialects/nn/Build.h"
#include "passes/KnownValues.h"
#include "passes/Passes.h"

#include <cmath>
#include <limits>

namespace pipec {
#define GEN_PASS_DEF_FUSEATTENTION
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

namespace {

/// Scores below this have no weight beside one that is in use.
constexpr double kLow = -1e9;
/// Row statistics are log sum exp in f32: a row's largest score must not be so
/// large that the logarithm of a sum is lost beside it.
constexpr double kMostTop = 64;
constexpr double kHidden = -std::numeric_limits<double>::infinity();

std::optional<double> splatOf(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto splat = constant ? dyn_cast<SplatElementsAttr>(constant.getValue())
                        : SplatElementsAttr();
  if (!splat || !isFloat(value))
    return std::nullopt;
  return splat.getSplatValue<APFloat>().convertToDouble();
}

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

Value withoutBroadcast(Value value) {
  while (auto broadcast = value.getDefiningOp<BroadcastOp>())
    value = broadcast.getX();
  return value;
}

/// What is added to the scores, `factor` times.
struct Term {
  Value value;               ///< of the scores' rank, to be repeated
  SmallVector<int64_t> full; ///< shape of the scores it is added to
  double factor = 1;
};

/// One softmax and what belongs to it.
struct Found {
  MatmulOp scores, result;
  Value q, k, v;
  double scale = 1;
  bool causal = false, zeroRows = false;
  SmallVector<Term> terms;
  SmallVector<int64_t> shape; ///< of the scores, as the masks see them
};

class Fuser {
public:
  Fuser(func::FuncOp main, int64_t mostHeadSize)
      : main(main), mostHeadSize(mostHeadSize), known(main) {}

  void run() {
    SmallVector<Found> all;
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
        !matchResult(softmax, found) || !matchScores(softmax.getX(), found))
      return std::nullopt;
    const int64_t size = tensorType(found.q)
                             .getShape()
                             .end()[found.scores.getTransposeA() ? -2 : -1];
    ArrayRef<int64_t> y = tensorType(found.result.getY()).getShape();
    if (size > mostHeadSize || size != y.back() || size == 0 ||
        llvm::is_contained(found.shape, 0) || !keepsTops(found))
      return std::nullopt;
    return found;
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
      for (unsigned mask : {1u, 0u}) {
        Found with = found;
        if ((mask == 0 && isa<SubOp>(op)) || trains(op->getOperand(mask)))
          continue;
        addTerm(op->getOperand(mask), isa<SubOp>(op) ? -1 : 1, with);
        if (!matchScores(op->getOperand(1 - mask), with))
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
      if (!low || !(*low * found.scale <= kLow))
        continue;
      SmallVector<int64_t> full(tensorType(select.getResult()).getShape());
      Value condition = withoutBroadcast(select.getCondition());
      auto keeps = [&](double x) { return (x != 0) == second; };
      auto drops = [&](double x) { return (x != 0) != second; };
      if (isTriangle(condition, full, keeps, drops))
        found.causal = true;
      else
        found.terms.push_back(
            {selected(select, condition, *low, second), full, found.scale});
      return matchScores(second ? select.getA() : select.getB(), found);
    }
    return false;
  }

  /// 0 where the condition keeps a score, else `low`.
  static Value selected(SelectOp select, Value condition, double low,
                        bool keepsTrue) {
    NNBuilder b(select.getLoc(), select);
    auto type = tensorType(condition).clone(b.getF32Type());
    Value zero = splat(b, type, 0), masked = splat(b, type, low);
    return keepsTrue ? nn::select(b, condition, zero, masked)
                     : nn::select(b, condition, masked, zero);
  }

  void addTerm(Value value, double sign, Found &found) {
    const double factor = sign * found.scale;
    SmallVector<int64_t> full(tensorType(value).getShape());
    value = withoutBroadcast(value);
    auto isZero = [](double x) { return x == 0; };
    auto isLow = [&](double x) { return x * factor <= kLow; };
    if (isAll(value, isZero))
      return;
    if (isTriangle(value, full, isZero, isLow))
      found.causal = true;
    else
      found.terms.push_back({value, full, factor});
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
    found.shape = found.terms.empty() ? SmallVector<int64_t>(own)
                                      : found.terms.front().full;
    ArrayRef<int64_t> rows = ArrayRef(found.shape).take_back(2);
    return rows == own.take_back(2) &&
           llvm::all_of(found.terms,
                        [&](const Term &t) { return t.full == found.shape; }) &&
           (!found.causal || rows[0] == rows[1]);
  }

  //===--------------------------------------------------------------------===//
  // What is known of masks
  //===--------------------------------------------------------------------===//

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

  using Test = llvm::function_ref<bool(double)>;

  bool isAll(Value value, Test test) {
    return forRows(value, [&](int64_t, int64_t, double x) { return test(x); });
  }

  /// Whether keys up to the query's position satisfy `upTo`, later ones
  /// `later`.
  bool isTriangle(Value value, ArrayRef<int64_t> full, Test upTo, Test later) {
    ArrayRef<int64_t> shape = tensorType(value).getShape();
    if (shape.size() < 2 || shape.take_back(2) != full.take_back(2) ||
        shape.back() != shape.end()[-2])
      return false;
    return forRows(value, [&](int64_t row, int64_t column, double x) {
      return column <= row ? upTo(x) : later(x);
    });
  }

  /// Whether the test holds for every row, column and element of a value that
  /// is known.
  bool forRows(Value value,
               llvm::function_ref<bool(int64_t, int64_t, double)> test) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return false;
    Literal literal = known.of(op);
    if (!literal || literal.getRank() < 2)
      return false;
    // One of many equal heads will do.
    if (Literal one = literal.compressed();
        one.getShape().take_back(2) == literal.getShape().take_back(2))
      literal = one;
    ArrayRef<int64_t> shape = literal.getShape();
    const int64_t columns = shape.back(), rows = shape[shape.size() - 2];
    const Literal *whole[] = {&literal};
    int64_t number = 0;
    bool all = true;
    forEachPosition(shape, whole, [&](ArrayRef<int64_t> at) {
      const double x = literal.isFloat()
                           ? literal.doubleAt(at[0])
                           : static_cast<double>(literal.intAt(at[0]));
      all = all && test(number / columns % rows, number % columns, x);
      ++number;
    });
    return all;
  }

  /// What a mask does to rows of scores.
  struct Effect {
    bool lowers = false; ///< by finite numbers beyond kMostTop
    bool hides = false;  ///< by minus infinity
  };

  /// Whether masks leave every row its largest score, or none at all: a row
  /// that finite numbers hide as a whole attends to all keys alike, which the
  /// statistics of its scores could not tell (see kMostTop).
  bool keepsTops(const Found &found) {
    int lower = 0, hide = 0;
    for (const Term &term : found.terms) {
      std::optional<Effect> effect = effectOf(term, found.causal);
      if (!effect)
        return false;
      lower += effect->lowers;
      hide += effect->hides && !effect->lowers;
    }
    return lower == 0 || (lower == 1 && hide == 0);
  }

  /// None when a row may be left with a top beyond kMostTop.
  std::optional<Effect> effectOf(const Term &term, bool causal) {
    Value value = term.value;
    while (auto reshape = value.getDefiningOp<ReshapeOp>())
      value = withoutBroadcast(reshape.getX());
    // Known at run time: one of two numbers.
    if (auto select = value.getDefiningOp<SelectOp>()) {
      Effect effect;
      bool small = true;
      for (Value side : {select.getA(), select.getB()}) {
        auto x = splatOf(withoutBroadcast(side));
        small = small && x &&
                (*x * term.factor == kHidden ||
                 std::abs(*x * term.factor) <= kMostTop);
        effect.hides |= small && *x * term.factor == kHidden;
      }
      if (small)
        return effect;
    }
    return knownEffect(term, causal);
  }

  std::optional<Effect> knownEffect(const Term &term, bool causal) {
    const int64_t rows = tensorType(term.value).getShape().end()[-2];
    Effect effect;
    int64_t last = -1;
    double top = 0;
    bool good = true;
    auto endRow = [&] { good = good && std::abs(top) <= kMostTop; };
    bool isKnown =
        forRows(term.value, [&](int64_t row, int64_t column, double x) {
          x *= term.factor;
          if (column == 0) {
            if (last >= 0)
              endRow();
            last = row;
            top = kHidden;
          }
          good = good && x <= kMostTop; // and no NaN
          // What all queries of the row see.
          if (!causal || column <= (rows == 1 ? 0 : row))
            top = std::max(top, x);
          effect.hides |= x == kHidden;
          effect.lowers |= x < -kMostTop && x != kHidden;
          return good;
        });
    endRow();
    if (!isKnown || !good)
      return std::nullopt;
    return effect;
  }

  //===--------------------------------------------------------------------===//
  // Rewriting
  //===--------------------------------------------------------------------===//

  void rewrite(Found &found) {
    NNBuilder b(found.result.getLoc(), found.result);
    auto swapped = [&](Value x) {
      auto permutation =
          llvm::to_vector(llvm::seq<int64_t>(0, tensorType(x).getRank()));
      std::swap(permutation.end()[-1], permutation.end()[-2]);
      return nn::transpose(b, x, permutation);
    };
    // The masks' view of the heads.
    auto shaped = [&](Value x) {
      SmallVector<int64_t> shape(ArrayRef(found.shape).drop_back(2));
      llvm::append_range(shape, tensorType(x).getShape().take_back(2));
      return nn::reshape(b, x, shape);
    };
    Value q = shaped(found.scores.getTransposeA() ? swapped(found.q) : found.q);
    Value k = shaped(found.scores.getTransposeB() ? found.k : swapped(found.k));
    Value v = shaped(found.result.getTransposeB() ? swapped(found.v) : found.v);
    auto attention = AttentionOp::create(
        b, q, k, v, biasOf(b, found), b.getF64FloatAttr(found.scale),
        found.causal ? b.getUnitAttr() : UnitAttr(),
        found.zeroRows ? b.getUnitAttr() : UnitAttr());
    found.result.getY().replaceAllUsesWith(nn::reshape(
        b, attention.getY(), tensorType(found.result.getY()).getShape()));
  }

  /// The sum of the terms, repeated as late as can be.
  static Value biasOf(NNBuilder &b, const Found &found) {
    if (found.terms.empty())
      return {};
    SmallVector<int64_t> common(found.shape.size(), 1);
    for (const Term &term : found.terms)
      for (auto [size, own] :
           llvm::zip_equal(common, tensorType(term.value).getShape()))
        size = std::max(size, own);
    Value sum;
    for (const Term &term : found.terms) {
      Value value = nn::cast(b, term.value, b.getF32Type());
      if (term.factor != 1)
        value = nn::mulScalar(b, value, term.factor);
      value = nn::broadcast(b, value, common);
      sum = sum ? nn::add(b, sum, value) : value;
    }
    return nn::broadcast(b, sum, found.shape);
  }

  func::FuncOp main;
  int64_t mostHeadSize;
  KnownValues known;
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
