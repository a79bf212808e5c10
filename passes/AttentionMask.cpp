//===- AttentionMask.cpp - what is done to scores before softmax ----------===//
#include "passes/AttentionMask.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

/// Scores below this have no weight beside one that is in use.
static constexpr double kLow = -1e9;
/// Scores that masks leave between this and its negative are in use.
static constexpr double kMostTop = 64;
static constexpr double kHidden = -std::numeric_limits<double>::infinity();
/// What every score is lost beside.
static constexpr double kLowest = std::numeric_limits<float>::lowest();

std::optional<double> pipec::splatOf(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto splat = constant ? dyn_cast<SplatElementsAttr>(constant.getValue())
                        : SplatElementsAttr();
  if (!splat || !isFloat(value))
    return std::nullopt;
  return splat.getSplatValue<APFloat>().convertToDouble();
}

static Value withoutBroadcast(Value value) {
  while (auto broadcast = value.getDefiningOp<BroadcastOp>())
    value = broadcast.getX();
  return value;
}

/// What a score that the condition does not keep becomes, in f32.
static double replacement(const MaskStep &step) {
  return static_cast<float>(*step.low * step.factor);
}

static bool isFiniteSelection(const MaskStep &step) {
  return step.low && replacement(step) != kHidden;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

std::optional<MaskStep> AttentionMask::added(Value value, double factor) {
  MaskStep step;
  llvm::append_range(step.full, tensorType(value).getShape());
  step.value = withoutBroadcast(value);
  step.factor = factor;
  if (remembered(Question::AddsNothing, step, 0, [&] {
        return forRows(step.value,
                       [](int64_t, int64_t, double x) { return x == 0; });
      }))
    return std::nullopt;
  step.isTriangle = isTriangle(
      step, [](double x) { return x == 0; },
      [](double x) { return x <= kLow; });
  return step;
}

std::optional<MaskStep> AttentionMask::selected(Value condition,
                                                ArrayRef<int64_t> full,
                                                double low, bool keepsTrue,
                                                double factor) {
  MaskStep step;
  step.value = withoutBroadcast(condition);
  llvm::append_range(step.full, full);
  step.low = low;
  step.keepsTrue = keepsTrue;
  step.factor = factor;
  if (!(replacement(step) <= kLow))
    return std::nullopt;
  step.isTriangle = isTriangle(
      step, [](double x) { return x == 0; },
      [](double x) { return x <= kLow; });
  return step;
}

//===----------------------------------------------------------------------===//
// What is known of them
//===----------------------------------------------------------------------===//

int AttentionMask::remembered(Question question, const MaskStep &step,
                              int detail, llvm::function_ref<int()> look) {
  Operation *op = step.value.getDefiningOp();
  const Literal literal = op ? known.of(op) : Literal();
  if (!literal)
    return look();
  const Asked asked(question, detail, literal.getStorage(), literal.getOffset(),
                    SmallVector<int64_t>(literal.getStrides()),
                    SmallVector<int64_t>(literal.getShape()),
                    step.low.has_value(),
                    llvm::bit_cast<uint64_t>(step.low.value_or(0)),
                    step.keepsTrue, llvm::bit_cast<uint64_t>(step.factor));
  if (auto it = answers.find(asked); it != answers.end())
    return it->second;
  return answers[asked] = look();
}

/// Whether the test holds for every row, column and element of a value that is
/// known.
bool AttentionMask::forRows(
    Value value, llvm::function_ref<bool(int64_t, int64_t, double)> test) {
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
  const bool isFloat = literal.isFloat();
  int64_t number = 0;
  bool all = true;
  forEachPosition(shape, whole, [&](ArrayRef<int64_t> at) {
    const double x = isFloat ? literal.doubleAt(at[0])
                             : static_cast<double>(literal.intAt(at[0]));
    all = all && test(number / columns % rows, number % columns, x);
    ++number;
  });
  return all;
}

/// The same of what the step adds to scores.
bool AttentionMask::forBias(
    const MaskStep &step,
    llvm::function_ref<bool(int64_t, int64_t, double)> test) {
  return forRows(step.value, [&](int64_t row, int64_t column, double x) {
    if (!step.low)
      return test(row, column, x * step.factor);
    return test(row, column,
                (x != 0) == step.keepsTrue ? 0 : replacement(step));
  });
}

/// Whether keys up to the query's position satisfy `upTo`, later ones `later`.
bool AttentionMask::isTriangle(const MaskStep &step, Test upTo, Test later) {
  ArrayRef<int64_t> shape = tensorType(step.value).getShape(), full = step.full;
  if (shape.size() < 2 || shape.take_back(2) != full.take_back(2) ||
      shape.back() != shape.end()[-2])
    return false;
  return remembered(Question::IsTriangle, step, 0, [&] {
    return forBias(step, [&](int64_t row, int64_t column, double x) {
      return column <= row ? upTo(x) : later(x);
    });
  });
}

/// Whether all that the step lowers becomes minus infinity.
bool AttentionMask::endsRows(const MaskStep &step) {
  if (step.low)
    return !isFiniteSelection(step);
  return remembered(Question::EndsRows, step, 0, [&] {
    return forBias(step, [](int64_t, int64_t, double x) {
      return x == 0 || x == kHidden;
    });
  });
}

/// Whether the step leaves a score as it is or makes it minus infinity.
bool AttentionMask::isNeutral(const MaskStep &step) {
  if (endsRows(step))
    return true;
  Value value = step.value;
  while (auto reshape = value.getDefiningOp<ReshapeOp>())
    value = withoutBroadcast(reshape.getX());
  // Known at run time: one of two numbers.
  auto select = step.low ? SelectOp() : value.getDefiningOp<SelectOp>();
  return select &&
         llvm::all_of(ValueRange{select.getA(), select.getB()},
                      [&](Value side) {
                        auto x = splatOf(withoutBroadcast(side));
                        return x && (*x == 0 || *x * step.factor == kHidden);
                      });
}

/// Whether the step is known to leave a key in use in every row of what is
/// seen; `hides`: not all of them.
bool AttentionMask::leavesTop(const MaskStep &step, bool causal, bool &hides) {
  const int answer = remembered(Question::LeavesTop, step, causal, [&] {
    bool any = false;
    const bool leaves = looksForTop(step, causal, any);
    return (leaves ? 1 : 0) + (any ? 2 : 0);
  });
  hides |= (answer & 2) != 0;
  return (answer & 1) != 0;
}

bool AttentionMask::looksForTop(const MaskStep &step, bool causal,
                                bool &hides) {
  const int64_t rows = tensorType(step.value).getShape().end()[-2];
  int64_t last = -1;
  double top = 0;
  bool good = true;
  auto endRow = [&] { good = good && std::abs(top) <= kMostTop; };
  bool isKnown = forBias(step, [&](int64_t row, int64_t column, double x) {
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
    hides |= x < -kMostTop;
    return good;
  });
  endRow();
  return isKnown && good;
}

/// Whether every row keeps a key in use, whatever the steps do together.
bool AttentionMask::leavesTops(ArrayRef<MaskStep> steps, bool causal) {
  int hiding = 0;
  for (const MaskStep &step : steps) {
    bool hides = false;
    if (!leavesTop(step, causal, hides))
      return false;
    hiding += hides;
  }
  return hiding <= 1;
}

//===----------------------------------------------------------------------===//
// As one bias
//===----------------------------------------------------------------------===//

std::optional<AttentionMask::Settled>
AttentionMask::settle(ArrayRef<MaskStep> steps) {
  Settled settled;
  llvm::copy_if(steps, std::back_inserter(settled.steps),
                [](const MaskStep &step) { return !step.isTriangle; });
  if (settled.steps.size() < steps.size()) {
    // Keys behind the query have no weight where another is in use, nor where
    // the triangle makes them minus infinity and nothing replaces that.
    settled.causal = leavesTops(settled.steps, /*causal=*/true);
    for (const MaskStep &step : steps) {
      if (settled.causal || isFiniteSelection(step))
        break;
      settled.causal = step.isTriangle && endsRows(step);
    }
    if (!settled.causal)
      settled.steps.assign(steps.begin(), steps.end());
  }
  if (llvm::none_of(settled.steps, isFiniteSelection) ||
      leavesTops(settled.steps, settled.causal))
    return settled;
  // In a row that is masked as a whole all replaced scores are equal, and
  // their gradient is 0: one low number for all, which nothing else comes near.
  std::optional<double> low;
  for (MaskStep &step : settled.steps) {
    if (!isFiniteSelection(step)) {
      if (!isNeutral(step))
        return std::nullopt;
      continue;
    }
    const double own = replacement(step);
    if (low.value_or(own) != own)
      return std::nullopt;
    low = own;
    step.low = kLowest;
    step.factor = 1;
  }
  settled.replaces = true;
  return settled;
}

Value AttentionMask::bias(NNBuilder &b, const Settled &settled,
                          ArrayRef<int64_t> shape) {
  Value sum;
  for (const MaskStep &step : llvm::reverse(settled.steps)) {
    SmallVector<int64_t> common(tensorType(step.value).getShape());
    if (sum)
      for (auto [size, own] :
           llvm::zip_equal(common, tensorType(sum).getShape()))
        size = std::max(size, own);
    auto spread = [&](Value x) { return nn::broadcast(b, x, common); };
    if (!step.low) {
      Value value = nn::cast(b, step.value, b.getF32Type());
      if (step.factor != 1)
        value = nn::mulScalar(b, value, step.factor);
      sum = sum ? nn::add(b, spread(sum), spread(value)) : value;
      continue;
    }
    auto type = RankedTensorType::get(common, b.getF32Type());
    Value kept = sum ? spread(sum) : splat(b, type, 0),
          masked = splat(b, type, replacement(step));
    sum = step.keepsTrue ? nn::select(b, spread(step.value), kept, masked)
                         : nn::select(b, spread(step.value), masked, kept);
  }
  return sum ? nn::broadcast(b, sum, shape) : sum;
}
