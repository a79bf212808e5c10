//===- AttentionGradients.cpp - both gradients of attention at once -------===//
//
// The gradients of queries and of keys are two ops, each with its own kernel
// and its own order of sums. cuDNN computes both in one call, which makes the
// row sums of dy * y itself: five products of the scores' size instead of
// seven. The kernels stay in the program, for where it does not.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/fusion/Plan.h"
#include "dialects/nn/NN.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;

namespace {
class Pairs {
public:
  explicit Pairs(TaskPlan &plan) : plan(plan) {}

  void run() {
    for (size_t i = 0, n = plan.units.size(); i < n; ++i)
      if (isa_and_nonnull<nn::AttentionGradKeysOp>(plan.units[i].op))
        tryKeys(static_cast<int>(i));
  }

private:
  /// The unit of the same attention's gradient of queries; -1: it is not in
  /// this task.
  int queriesOf(nn::AttentionGradKeysOp keys) {
    for (auto [i, unit] : llvm::enumerate(plan.units))
      if (auto queries = dyn_cast_or_null<nn::AttentionGradQueryOp>(unit.op);
          queries && queries->getOperands() == keys->getOperands() &&
          queries->getAttrs() == keys->getAttrs())
        return static_cast<int>(i);
    return -1;
  }

  /// What dy is multiplied with for the row sums.
  static Value resultOf(nn::AttentionGradKeysOp keys) {
    auto sum = keys.getDelta().getDefiningOp<nn::ReduceOp>();
    auto product = sum ? sum.getX().getDefiningOp<nn::MulOp>() : nn::MulOp();
    if (!product || sum.getKind() != "sum")
      return {};
    auto narrow = [](Value value) {
      auto cast = value.getDefiningOp<nn::CastOp>();
      return cast ? cast.getX() : value;
    };
    Value a = narrow(product.getOperand(0)), b = narrow(product.getOperand(1));
    if (a != keys.getDy())
      std::swap(a, b);
    return a == keys.getDy() && b.getType() == a.getType() ? b : Value();
  }

  int kernelOf(Value value) {
    for (auto [i, unit] : llvm::enumerate(plan.units))
      if (unit.kind == Unit::Kernel &&
          llvm::any_of(unit.kernel.targets, [&](const Target &target) {
            return target.value == value;
          }))
        return static_cast<int>(i);
    return -1;
  }

  /// Whether the kernel does nothing but the row sums of these two units.
  static bool isAlone(const KernelPlan &kernel, Value delta) {
    return kernel.targets.size() == 1 && kernel.spills.empty() &&
           kernel.partials.empty() && llvm::range_size(delta.getUses()) == 2;
  }

  /// What is written is not what is read.
  bool isApart(const Unit &keys, const Unit &queries, const Placement &y) {
    SmallVector<Placement> read(ArrayRef(keys.operands).drop_back(2));
    read.push_back(y);
    for (const Placement &to : {queries.operands.back(), keys.operands.back(),
                                keys.operands.end()[-2]})
      for (const Placement &from : read)
        if (to.buffer < 0 ||
            (from.buffer >= 0 &&
             (to.buffer == from.buffer ||
              overlap(plan.buffers[to.buffer], plan.buffers[from.buffer]))))
          return false;
    return true;
  }

  void tryKeys(int index) {
    auto keys = cast<nn::AttentionGradKeysOp>(plan.units[index].op);
    const int queries = queriesOf(keys), delta = kernelOf(keys.getDelta());
    Value result = resultOf(keys);
    if (queries < 0 || delta < 0 || !result)
      return;
    const KernelPlan &kernel = plan.units[delta].kernel;
    const auto *leaf = kernel.leaves.find(result);
    if (leaf == kernel.leaves.end() || leaf->second.kind != Leaf::Memory)
      return;
    Unit &unit = plan.units[index];
    const Placement y = leaf->second.place;
    if (!isAlone(kernel, keys.getDelta()) || unit.accumulate ||
        plan.units[queries].accumulate ||
        !isApart(unit, plan.units[queries], y))
      return;
    unit.attention = {queries, delta, y};
    join(index, queries);
    join(index, delta);
  }

  /// What `part` does is done when `whole` runs: that waits for what either
  /// waited for, and all that waited for `part` waits for it.
  void join(int whole, int part) {
    Unit &to = plan.units[whole], &from = plan.units[part];
    for (auto [i, unit] : llvm::enumerate(plan.units))
      if (static_cast<int>(i) != whole && llvm::is_contained(unit.after, part))
        unit.after.push_back(whole);
    llvm::append_range(to.after, from.after);
    llvm::append_range(to.touches, from.touches);
    from.isDeferred = true;
  }

  TaskPlan &plan;
};
} // namespace

void fusion::pairAttentionGradients(TaskPlan &plan) { Pairs(plan).run(); }
