//===- Epilogue.cpp - biases that a library adds --------------------------===//
//
// cuBLASLt can add a vector to the rows of a product before it writes them. A
// kernel that does nothing but that is worth leaving out; one that adds a bias
// on its way to something else is not, as it runs anyhow. The kernel stays in
// the program, for libraries that do not add this bias.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/fusion/Plan.h"
#include "dialects/nn/NN.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;
using nn::tensorType;

namespace {
/// y = cast(add(views(product), bias)), where casts only stand around wide
/// products of bf16.
struct Sum {
  nn::AddOp add;
  nn::MatmulOp product;
  SmallVector<Operation *> views; ///< from the product on
  Value bias;                     ///< the other operand
};

class Epilogues {
public:
  explicit Epilogues(TaskPlan &plan) : plan(plan) {
    for (auto [i, unit] : llvm::enumerate(plan.units))
      if (unit.kind == Unit::Library && isa<nn::MatmulOp>(unit.op))
        products[unit.op] = i;
  }

  void run() {
    for (size_t i = 0, n = plan.units.size(); i < n; ++i)
      if (plan.units[i].kind == Unit::Kernel)
        tryKernel(i);
  }

private:
  static bool isF32(Value value) {
    return tensorType(value).getElementType().isF32();
  }

  /// What the kernel computes, if it is a product's sum with something.
  std::optional<Sum> sumOf(const KernelPlan &kernel) {
    if (kernel.targets.size() != 1 || kernel.targets.front().accumulate ||
        !kernel.spills.empty() || !kernel.partials.empty())
      return std::nullopt;
    Value result = kernel.targets.front().value;
    auto rounded = result.getDefiningOp<nn::CastOp>();
    Sum sum;
    sum.add = (rounded ? rounded.getX() : result).getDefiningOp<nn::AddOp>();
    if (!sum.add || !isF32(sum.add.getY()))
      return std::nullopt;
    for (Operation *op : kernel.group->ops)
      if (op != sum.add && op != rounded)
        return std::nullopt;
    for (bool second : {false, true}) {
      sum.bias = sum.add->getOperand(!second);
      if (findProduct(sum.add->getOperand(second), sum) &&
          sum.product.getWide() == static_cast<bool>(rounded) &&
          (rounded || isF32(sum.product.getA())))
        return sum;
    }
    return std::nullopt;
  }

  /// Back to a product that the addition alone reads.
  bool findProduct(Value value, Sum &sum) {
    sum.views.clear();
    Operation *op = value.getDefiningOp();
    while (op && value.hasOneUse() && isBijectiveView(op)) {
      sum.views.insert(sum.views.begin(), op);
      value = op->getOperand(0);
      op = value.getDefiningOp();
    }
    sum.product = dyn_cast_or_null<nn::MatmulOp>(op);
    return sum.product && value.hasOneUse() && products.contains(op);
  }

  /// Where the product's elements are when what is seen through its views is
  /// at `at`.
  static std::optional<Placement> asProduct(Sum &sum, Placement at) {
    for (Operation *view : llvm::reverse(sum.views)) {
      auto back = backThroughView(view, at);
      if (!back)
        return std::nullopt;
      at = *back;
    }
    return at;
  }

  /// Where the bias is in the type that the library wants, which is that of
  /// the sum.
  std::optional<Placement> biasPlace(int kernel, Sum &sum) {
    const auto &leaves = plan.units[kernel].kernel.leaves;
    const auto *leaf = leaves.find(sum.bias);
    if (leaf == leaves.end() || leaf->second.kind != Leaf::Memory)
      return std::nullopt;
    if (!sum.product.getWide())
      return leaf->second.place;
    // It was rounded, and made f32 again for the kernel.
    SmallVector<Operation *> views;
    Value value = sum.bias;
    for (; value.getDefiningOp() && isView(value.getDefiningOp());
         value = value.getDefiningOp()->getOperand(0))
      views.insert(views.begin(), value.getDefiningOp());
    auto widened = value.getDefiningOp<nn::CastOp>();
    std::optional<Placement> at =
        widened ? roundedPlace(widened.getX()) : std::nullopt;
    for (Operation *view : views)
      if (at)
        at = throughView(view, *at);
    return at;
  }

  /// The kernel that rounds a vector to bf16 keeps that, too.
  std::optional<Placement> roundedPlace(Value value) {
    if (!tensorType(value).getElementType().isBF16() ||
        tensorType(value).getRank() != 1)
      return std::nullopt;
    for (auto [i, unit] : llvm::enumerate(plan.units)) {
      if (unit.kind != Unit::Kernel ||
          !unit.kernel.group->ops.contains(value.getDefiningOp()) ||
          !unit.kernel.nest.rowReductions.empty())
        continue;
      rounding = static_cast<int>(i);
      for (const Target &target : unit.kernel.targets)
        if (target.value == value && !target.accumulate)
          return target.place;
      Buffer buffer;
      buffer.bytes = nn::byteSize(value.getType());
      plan.buffers.push_back(buffer);
      const Placement at{static_cast<int>(plan.buffers.size()) - 1, 0, {1}};
      unit.kernel.targets.push_back({value, at, false});
      unit.touches.push_back(at.buffer);
      settleLoops(unit.kernel);
      return at;
    }
    return std::nullopt;
  }

  /// Row-major, one call, and in memory that the product does not read.
  bool canWrite(const Unit &product, Sum &sum, const Placement &at) {
    ArrayRef<int64_t> shape = tensorType(sum.product.getY()).getShape();
    SmallVector<Placement> places(product.operands);
    places.back() = at;
    if (!isMatrixPlace(shape, at) || shape.back() == 1 ||
        at.strides.back() != 1 || batchLoops(shape, places) > 1 ||
        product.accumulate || llvm::is_contained(shape, 0))
      return false;
    return llvm::none_of(
        ArrayRef(product.operands).drop_back(), [&](const Placement &from) {
          return overlap(plan.buffers[from.buffer], plan.buffers[at.buffer]);
        });
  }

  /// A vector along the last dimension, the same for all others.
  static bool isRow(ArrayRef<int64_t> shape, const Placement &at) {
    for (size_t d = 0; d + 1 < shape.size(); ++d)
      if (shape[d] != 1 && at.strides[d] != 0)
        return false;
    return at.strides.back() == 1;
  }

  void tryKernel(int index) {
    auto sum = sumOf(plan.units[index].kernel);
    if (!sum)
      return;
    rounding = -1;
    product = products[sum->product];
    const Placement target = plan.units[index].kernel.targets.front().place;
    auto to = asProduct(*sum, target);
    if (!to || !canWrite(plan.units[product], *sum, *to))
      return;
    auto seen = biasPlace(index, *sum);
    auto bias = seen ? asProduct(*sum, *seen) : seen;
    if (!bias || !isRow(tensorType(sum->product.getY()).getShape(), *bias))
      return;
    // Both are one step, which waits for what either waited for.
    Unit &kernel = plan.units[index], &unit = plan.units[product];
    llvm::append_range(unit.after, kernel.after);
    llvm::erase(unit.after, product);
    if (rounding >= 0)
      unit.after.push_back(rounding);
    llvm::append_range(unit.touches, kernel.touches);
    unit.touches.push_back(bias->buffer);
    unit.bias = {index, *bias, *to};
    kernel.isDeferred = true;
  }

  TaskPlan &plan;
  llvm::DenseMap<Operation *, int> products;
  /// Of the kernel in question: its product, and who rounds its bias.
  int product = -1, rounding = -1;
};
} // namespace

bool fusion::overlap(const Buffer &a, const Buffer &b) {
  return a.kind == Buffer::Region && b.kind == Buffer::Region &&
         a.region == b.region && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

void fusion::chooseEpilogues(TaskPlan &plan) { Epilogues(plan).run(); }
